package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/statemesh/statemesh/store"
)

// adminShutdown bounds how long the admin endpoint waits for a page in the making, such as a profile.
const adminShutdown = 2 * time.Second

// serveAdmin serves the admin pages until ctx ends.
func (s *Server) serveAdmin(ctx context.Context, lis net.Listener) error {
	srv := &http.Server{
		Handler:           s.adminMux(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
	}
	s.log.InfoContext(ctx, "serving admin pages", "address", lis.Addr().String())
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminShutdown)
		defer cancel()
		if srv.Shutdown(down) != nil {
			_ = srv.Close() // whoever still reads a page does not get the rest
		}
	})
	err := srv.Serve(lis)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve admin pages at %s: %w", lis.Addr(), err)
}

// adminMux has the pages: /metrics, /healthz (the process lives), /readyz (its stores answer), /statusz (JSON) and
// /debug/pprof/.
func (s *Server) adminMux() http.Handler {
	mux := http.NewServeMux()
	if s.cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			reply(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		reply(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /statusz", s.statusz)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func (s *Server) ready() error {
	select {
	case <-s.stopping:
		return store.ErrShuttingDown
	default:
	}
	if s.deps.Table.Load() == nil {
		return noMetadata("")
	}
	if s.deps.Ready != nil {
		return s.deps.Ready()
	}
	return nil
}

// statusPage is what /statusz shows.
type statusPage struct {
	Application string   `json:"application"`
	Instance    string   `json:"instance"`
	Endpoint    string   `json:"endpoint"`
	Epoch       int64    `json:"epoch"`
	Instances   []string `json:"instances"`
	Ready       bool     `json:"ready"`
	NotReady    string   `json:"not_ready,omitempty"`
	// Detail is what the rest of the instance tells.
	Detail any `json:"detail,omitempty"`
}

func (s *Server) statusz(w http.ResponseWriter, _ *http.Request) {
	st := statusPage{
		Application: s.cfg.Application, Instance: s.cfg.Instance, Endpoint: s.cfg.Endpoint, Ready: true, Instances: []string{},
	}
	if snap := s.deps.Table.Load(); snap != nil {
		st.Epoch = int64(snap.Epoch())
		for _, in := range snap.Instances() {
			st.Instances = append(st.Instances, in.ID+" "+in.Endpoint)
		}
	}
	if err := s.ready(); err != nil {
		st.Ready, st.NotReady = false, err.Error()
	}
	if s.deps.Status != nil {
		st.Detail = s.deps.Status()
	}
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		reply(w, http.StatusInternalServerError, "the status cannot be shown as JSON")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // a reader that left needs no answer
}

func reply(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // a reader that left needs no answer
}
