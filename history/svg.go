package history

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Geometry of the picture, in its own units.
const (
	svgWidth  = 1080.0
	svgLeft   = 110.0
	svgRight  = 20.0
	svgPanel  = 120.0
	svgGap    = 38.0
	svgLane   = 14.0
	svgTop    = 64.0
	svgPlot   = svgWidth - svgLeft - svgRight
	svgStyles = `
svg{background:#fff;font:12px system-ui,sans-serif}
text{fill:#222}.dim{fill:#666}.grid{stroke:#ddd;stroke-width:1}.axis{stroke:#888;stroke-width:1}
.ok{fill:#3b7dd8;fill-opacity:.55}.bad{fill:#d1242f}.age{fill:none;stroke:#8250df;stroke-width:1.4}.ack{fill:none;stroke:#1a7f37;stroke-width:1.4}
.fault{fill:#bf8700;fill-opacity:.85}.band{fill:#bf8700;fill-opacity:.09}.right{fill:#1a7f37}.wrong{fill:#d1242f}
@media (prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#2a313c}.axis{stroke:#656c76}
.ok{fill:#58a6ff;fill-opacity:.5}.bad{fill:#f85149}.age{stroke:#bc8cff}.ack{stroke:#3fb950}.fault{fill:#d29922}.band{fill:#d29922;fill-opacity:.13}
.right{fill:#3fb950}.wrong{fill:#f85149}}
`
)

// WriteSVG draws the timeline: reads answered and failed, the worst age of an answer, and writes, against the faults. It needs
// nothing from elsewhere, and follows the reader's colour scheme.
func (r *Report) WriteSVG(w io.Writer) error {
	d := &drawing{r: r, span: max(r.Length, r.Timeline.Step)}
	d.draw()
	_, err := io.WriteString(w, d.b.String())
	return err
}

type drawing struct {
	r    *Report
	b    strings.Builder
	span time.Duration
	y    float64
}

func (d *drawing) addf(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

func (d *drawing) x(at time.Duration) float64 {
	return svgLeft + svgPlot*float64(at)/float64(d.span)
}

func (d *drawing) text(x, y float64, class, anchor, s string) {
	d.addf(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, escape(s))
}

func (d *drawing) draw() {
	var kinds []string
	for _, f := range d.r.Faults {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	lanes := float64(len(kinds)) * svgLane
	height := svgTop + lanes + 3*(svgPanel+svgGap) + 30
	d.addf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="availability and staleness against faults">`, svgWidth, height)
	d.addf("<style>%s</style>", svgStyles)
	d.head()
	bottom := svgTop + lanes + 3*(svgPanel+svgGap)
	for _, f := range d.r.Faults {
		d.addf(`<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, d.x(f.From), svgTop, max(1, d.x(f.Until)-d.x(f.From)), bottom-svgTop-svgGap+10)
	}
	d.y = svgTop
	for _, kind := range kinds {
		d.text(svgLeft-8, d.y+svgLane-4, "dim", "end", short(kind))
		for _, f := range d.r.Faults {
			if f.Kind == kind {
				d.addf(`<rect class="fault" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
					d.x(f.From), d.y+2, max(1.5, d.x(f.Until)-d.x(f.From)), svgLane-4, escape(kind+" "+f.Target+" at "+seconds(f.From)))
			}
		}
		d.y += svgLane
	}
	step := d.r.Timeline.Step.Seconds()
	d.y += svgGap - 10
	d.bars("reads per second: answered, failed", step)
	d.line("worst age of an answer, ms", "age", func(p Point) float64 { return p.WorstAge })
	d.line("writes acknowledged per second", "ack", func(p Point) float64 { return float64(p.Acked) / step })
	d.times()
	d.addf("</svg>")
}

func (d *drawing) head() {
	r := d.r
	verdict, class := "right", "right"
	if n := r.Broken(); n > 0 {
		verdict, class = fmt.Sprintf("%d violations", n), "wrong"
	} else if !r.Right {
		verdict, class = "nothing judged", "wrong"
	}
	d.text(svgLeft, 24, class, "start", verdict)
	line := fmt.Sprintf("%d writes, %d reads answered, %d failed, %d faults in %s", r.Writes.Acked, r.Reads.Answered, r.Reads.Failed,
		len(r.Faults), r.Length.Round(100*time.Millisecond))
	if r.Seed != 0 {
		line += fmt.Sprintf(", seed %d", r.Seed)
	}
	d.text(svgLeft, 44, "dim", "start", line)
}

// panel draws the frame of a panel and returns the scale of its values.
func (d *drawing) panel(title string, most float64) float64 {
	top := nice(most)
	d.text(svgLeft, d.y-6, "dim", "start", title)
	for i := range 3 {
		y := d.y + svgPanel*float64(i)/2
		d.addf(`<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, svgLeft, y, svgLeft+svgPlot, y)
		d.text(svgLeft-8, y+4, "dim", "end", fmt.Sprintf("%g", top*float64(2-i)/2))
	}
	return svgPanel / top
}

func (d *drawing) bars(title string, step float64) {
	most := 1.0
	for _, p := range d.r.Timeline.Points {
		most = max(most, float64(p.Answered+p.Failed)/step)
	}
	scale := d.panel(title, most)
	width := max(0.5, svgPlot*float64(d.r.Timeline.Step)/float64(d.span))
	for i, p := range d.r.Timeline.Points {
		x := d.x(time.Duration(i) * d.r.Timeline.Step)
		ok, bad := float64(p.Answered)/step*scale, float64(p.Failed)/step*scale
		w := min(width, svgLeft+svgPlot-x)
		if p.Answered > 0 {
			d.addf(`<rect class="ok" x="%.1f" y="%.1f" width="%.2f" height="%.1f"/>`, x, d.y+svgPanel-ok, w, ok)
		}
		if p.Failed > 0 {
			bad = max(bad, 2)
			d.addf(`<rect class="bad" x="%.1f" y="%.1f" width="%.2f" height="%.1f"/>`, x, d.y+svgPanel-ok-bad, w, bad)
		}
	}
	d.y += svgPanel + svgGap
}

func (d *drawing) line(title, class string, of func(Point) float64) {
	most := 1.0
	for _, p := range d.r.Timeline.Points {
		most = max(most, of(p))
	}
	scale := d.panel(title, most)
	var path strings.Builder
	for i, p := range d.r.Timeline.Points {
		op := 'L'
		if i == 0 {
			op = 'M'
		}
		x := min(d.x(time.Duration(i)*d.r.Timeline.Step+d.r.Timeline.Step/2), svgLeft+svgPlot)
		fmt.Fprintf(&path, "%c%.1f %.1f", op, x, d.y+svgPanel-of(p)*scale)
	}
	if path.Len() > 0 {
		d.addf(`<path class="%s" d="%s"/>`, class, path.String())
	}
	d.y += svgPanel + svgGap
}

// times draws the axis of time.
func (d *drawing) times() {
	y := d.y - svgGap
	d.addf(`<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, svgLeft, y, svgLeft+svgPlot, y)
	step := time.Duration(nice(d.span.Seconds()/8) * float64(time.Second))
	for at := time.Duration(0); at <= d.span; at += step {
		d.text(d.x(at), y+18, "dim", "middle", at.String())
	}
}

// nice is the next number above v that reads well: 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// short cuts a name for the margin.
func short(s string) string {
	const most = 16
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func escape(s string) string {
	var e strings.Builder
	_ = xml.EscapeText(&e, []byte(s)) // a strings.Builder does not fail
	return e.String()
}
