package history

import "time"

// maxPoints bounds a timeline; above it two points become one.
const maxPoints = 600

// Timeline is a history in equal steps.
type Timeline struct {
	Step   time.Duration `json:"step_ns"`
	Points []Point       `json:"points"`
}

// Point is what happened in one step.
type Point struct {
	// Answered and Failed reads, and of those the ones that insisted on the owner.
	Answered       int `json:"answered"`
	Failed         int `json:"failed"`
	ActiveAnswered int `json:"active_answered,omitempty"`
	ActiveFailed   int `json:"active_failed,omitempty"`
	// Acked writes.
	Acked int `json:"acked"`
	// WorstAge of an answer, in milliseconds.
	WorstAge float64 `json:"worst_age_ms"`
}

type timeline struct{ t Timeline }

func newTimeline() timeline { return timeline{Timeline{Step: 100 * time.Millisecond}} }

func (l *timeline) at(at time.Duration) *Point {
	for int(at/l.t.Step) >= maxPoints {
		half := l.t.Points[:0]
		for i := 0; i < len(l.t.Points); i += 2 {
			p := l.t.Points[i]
			if i+1 < len(l.t.Points) {
				p.add(l.t.Points[i+1])
			}
			half = append(half, p)
		}
		l.t.Points, l.t.Step = half, 2*l.t.Step
	}
	for len(l.t.Points) <= int(at/l.t.Step) {
		l.t.Points = append(l.t.Points, Point{})
	}
	return &l.t.Points[at/l.t.Step]
}

func (p *Point) add(o Point) {
	p.Answered += o.Answered
	p.Failed += o.Failed
	p.ActiveAnswered += o.ActiveAnswered
	p.ActiveFailed += o.ActiveFailed
	p.Acked += o.Acked
	p.WorstAge = max(p.WorstAge, o.WorstAge)
}

func (l *timeline) write(at time.Duration) { l.at(at).Acked++ }

func (l *timeline) answered(at time.Duration, q *Read, age time.Duration) {
	p := l.at(at)
	p.Answered++
	if q.Active {
		p.ActiveAnswered++
	}
	p.WorstAge = max(p.WorstAge, ms(age))
}

func (l *timeline) failed(at time.Duration, q *Read) {
	p := l.at(at)
	p.Failed++
	if q.Active {
		p.ActiveFailed++
	}
}

func (l *timeline) points(end time.Duration) Timeline {
	l.at(end)
	return l.t
}
