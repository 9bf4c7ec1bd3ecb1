package history

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// TestFileKeepsEverything writes one of each kind and reads it back.
func TestFileKeepsEverything(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	rec, err := Create(path, Options{Seed: 7, Note: "a note"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{}); err == nil {
		t.Error("a second recorder of one file is accepted")
	}
	odd := Text("a\xff\"\n")
	rec.Store("counts", Counter)
	rec.Write(Write{Writer: "w", Topic: "in", Effects: []Effect{{Store: "counts", Key: odd, Add: 1}}}).Acked(2, 3)
	rec.Write(Write{Topic: "in"}).Unknown("timeout")
	rec.Write(Write{Topic: "in"}).Refused("aborted")
	token := store.Token{Cuts: map[store.Partition]store.Cut{2: {TopicID: [16]byte{1}, Next: 9}}, Inputs: store.Position{"in": {2: 3}}}
	rec.Read(Read{Store: "counts", Key: odd, Session: "s", Bound: time.Second, AtLeast: MarkOf(token)}).
		Answered(AnswerOf(2, store.Facts{Role: store.RoleActive, Token: token, Position: token.Inputs}).With("1").By("one", 4))
	rec.Read(Read{Store: "counts", Scan: true}).Failed("no replica")
	rec.Fault("kill", "one").Mended()
	rec.Log(Row{Store: "counts", Key: odd, Found: true, Value: "1"})
	rec.Final(Row{Store: "counts", Key: odd, Found: true, Value: "1", Instance: "one"})
	if err := errors.Join(rec.Err(), rec.Close(), rec.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := CheckFile(path, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Right || !r.Ended || r.Seed != 7 || r.Note != "a note" || r.Writes.Unknown != 1 || r.Writes.Refused != 1 || r.Reads.Failed != 1 || len(r.Faults) != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := CheckFile(path+"x", CheckOptions{}); err == nil {
		t.Error("a file that is not there is judged")
	}
}

// TestCutFile cuts a history at every byte, as a kill of the recorder does: what is left is judged, but for a cut header.
func TestCutFile(t *testing.T) {
	t.Parallel()
	p := newTape()
	p.add("a")
	p.get(Read{}, 1, owner())
	if err := p.rec.Close(); err != nil {
		t.Fatal(err)
	}
	whole := p.buf.Bytes()
	header := bytes.IndexByte(whole, '\n') + 1
	for n := range len(whole) + 1 {
		r := NewReader(bytes.NewReader(whole[:n]))
		_, err := Check(r.Events(), CheckOptions{})
		if n < header {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%d bytes of a header: %v", n, err)
			}
			continue
		}
		cut := 1
		if whole[n-1] == '\n' {
			cut = 0
		}
		if err != nil || r.Cut() != cut {
			t.Fatalf("%d bytes: %v, %d lines cut", n, err, r.Cut())
		}
	}
}

// TestMalformed names the line and what is wrong with it.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const header = `{"e":"history","t":0,"header":{"version":1}}` + "\n"
	const counts = header + `{"e":"store","t":0,"store":{"name":"counts","model":"counter"}}` + "\n"
	for in, want := range map[string]string{
		"":                                     "no header",
		"nonsense\n":                           "line 1",
		`{"e":"end","t":0}` + "\n":             "line 1",
		strings.Replace(header, "1", "2", 1):   "version 2, want 1",
		header + header:                        "line 2",
		header + `{"e":"song","t":0}` + "\n":   `"song" is not known`,
		header + `{"e":"write","t":0}` + "\n":  "line 2: write: a field is missing",
		header + `{"e":"mended","t":1}` + "\n": "fault 0 is mended",
		header + `{"e":"acked","t":1,"id":4,"place":{"p":0,"o":1}}` + "\n":                                                                   "write 4, which is not under way",
		header + `{"e":"failed","t":1,"id":4}` + "\n":                                                                                        "read 4, which is not under way",
		header + `{"e":"read","t":1,"id":4,"read":{"store":"x","key":"a"}}` + "\n":                                                           "store x was not declared",
		header + `{"e":"end","t":5}` + "\n" + `{"e":"end","t":4}` + "\n":                                                                     "comes after",
		header + `{"e":"store","t":0,"store":{"name":"x","model":"heap"}}` + "\n":                                                            `model "heap"`,
		counts + `{"e":"store","t":0,"store":{"name":"counts","model":"register"}}` + "\n":                                                   "declared as counter and as register",
		counts + `{"e":"write","t":0,"id":1,"write":{"topic":"t","effects":[{"store":"counts","key":"a"}]}}` + "\n":                          "adds 0",
		counts + strings.Repeat(`{"e":"write","t":0,"id":1,"write":{"topic":"t","effects":[{"store":"counts","key":"a","add":1}]}}`+"\n", 2): "id 1 comes after 1",
		counts + `{"e":"final","t":0,"row":{"store":"names","key":"a"}}` + "\n":                                                              "store names was not declared",
	} {
		_, err := Check(NewReader(strings.NewReader(in)).Events(), CheckOptions{})
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", in, err, want)
		}
	}
}

// TestNothingIsNotRight: a history in which nothing happened proves nothing.
func TestNothingIsNotRight(t *testing.T) {
	t.Parallel()
	if r := newTape().judge(t); r.Right {
		t.Error("an empty history is right")
	}
	p := newTape()
	p.add("a")
	p.rec.Read(Read{Store: "counts", Key: "a"}).Failed("no replica")
	if r := p.judge(t); r.Right {
		t.Error("a history without an answer is right")
	}
}

// TestRecorderTogether: times and order are one, whoever records.
func TestRecorderTogether(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	rec := New(&buf, Options{})
	rec.Store("counts", Counter)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				key := Text(fmt.Sprint(g))
				rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: key, Add: 1}}}).Acked(store.Partition(g), store.Offset(i))
				rec.Read(Read{Store: "counts", Key: key, Latest: true}).Answered(Answer{Found: true, Value: Text(fmt.Sprint(i + 1))})
			}
		})
	}
	wg.Wait()
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Check(NewReader(&buf).Events(), CheckOptions{})
	if err != nil || !r.Right || r.Reads.Answered != 1600 || r.Linear.Unknown != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestRecorderOfAFullDisk says so at its end, and disturbs nobody.
func TestRecorderOfAFullDisk(t *testing.T) {
	t.Parallel()
	rec := New(full{}, Options{})
	rec.Store(strings.Repeat("x", 1<<17), Counter)
	rec.Write(Write{}).Acked(0, 0)
	if err := rec.Err(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
	if err := rec.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("close: %v", err)
	}
}

// TestImpacts: what a fault did is put down to it, and to it alone.
func TestImpacts(t *testing.T) {
	t.Parallel()
	p := newTape()
	bounded := Read{Bound: time.Hour}
	o := p.add("a") // 2s
	p.get(bounded, 1, with(owner(), func(a *Answer) { a.Position = at(o) }))
	o = p.add("a")
	p.step()
	f := p.rec.Fault("kill", "one")
	r := p.rec.Read(Read{Store: "counts", Key: "a", Bound: time.Hour})
	p.now += 3 * time.Second
	r.Failed("unreachable")
	p.get(bounded, 2, with(owner(), func(a *Answer) { a.Age, a.Position = 2500*time.Millisecond, at(o) }))
	p.get(Read{Active: true}, 2, owner())
	p.get(Read{Active: true, Via: "one"}, 2, owner())
	r = p.rec.Read(Read{Store: "counts", Key: "a", Class: "rare"})
	p.step()
	r.Failed("unreachable")
	p.now += time.Minute // nobody asks: no outage is known
	p.get(Read{Class: "rare"}, 2, owner())
	f.Mended()
	p.now += time.Hour
	p.get(bounded, 2, owner())
	report := p.judge(t)
	want := []*Impact{
		{Fault: "calm", Reads: map[string]*Served{"bounded": {Tried: 2, Slowest: 1000, Outage: 1000}}, WritePause: 2000},
		{Fault: "kill", Times: 1, Reads: map[string]*Served{
			"bounded": {Tried: 2, Failed: 1, Slowest: 1000, Outage: 5000},
			"active":  {Tried: 1, Slowest: 1000, Outage: 1000},
			"direct":  {Tried: 1, Slowest: 1000, Outage: 1000},
			"rare":    {Tried: 2, Failed: 1, Slowest: 1000, Outage: 1000},
		}, WorstAge: 2500, WritePause: 6000},
	}
	if diff := cmp.Diff(want, report.Impacts); diff != "" {
		t.Error(diff)
	}
}

// TestPicture is well-formed, and asks for nothing from elsewhere.
func TestPicture(t *testing.T) {
	t.Parallel()
	for _, b := range []bug{sound, doubleCount} {
		r := judged(t, 3, b)
		r.Faults = append(r.Faults, Break{Kind: `a "quoted" <kind>`, Target: "&", Until: time.Second})
		var svg, report strings.Builder
		if err := errors.Join(r.WriteSVG(&svg), r.WriteJSON(&report)); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(svg.String()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(svg.String(), "http"); n != 1 || strings.Contains(svg.String(), "url(") { // its own name space
			t.Errorf("%d addresses in the picture", n)
		}
		var back Report
		if err := json.Unmarshal([]byte(report.String()), &back); err != nil || back.Right != r.Right || len(back.Impacts) == 0 {
			t.Errorf("report: %v, right %v", err, back.Right)
		}
	}
}

// FuzzReader: no file makes the judge panic, and a history that is read is judged the same again.
func FuzzReader(f *testing.F) {
	for _, steps := range []int{3, 12, 25} { // small ones: the fuzzer shrinks what it finds, byte by byte
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		newFleet(uint64(steps), sound, func(ev Event) { _ = e.Encode(ev) }).run(steps)
		f.Add(buf.Bytes()[:min(buf.Len(), 2500)])
	}
	f.Add([]byte(`{"e":"history","t":0,"header":{"version":1}}` + "\n" + `{"e":"final","t":0,"row":{"store":"x","key":{"base64":"/w=="}}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := CheckOptions{LinearTime: -1}
		r, err := Check(NewReader(bytes.NewReader(b)).Events(), o)
		again, err2 := Check(NewReader(bytes.NewReader(b)).Events(), o)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, then %v", err, err2)
		}
		if err == nil && (r.Right != again.Right || r.Broken() != again.Broken()) {
			t.Fatalf("right %v, %d broken; then %v, %d", r.Right, r.Broken(), again.Right, again.Broken())
		}
	})
}
