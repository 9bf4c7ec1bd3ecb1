package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/store"
)

// askFlags say whom to ask, and how.
type askFlags struct {
	addrs             []string
	timeout           time.Duration
	app               string
	caFile            string
	certFile, keyFile string
	plaintext         bool
}

const defaultAddr = "127.0.0.1:7070"

func (a *askFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&a.addrs, "addr", "a", nil, "instances to ask, host:port; one: that instance itself; several: any of them tells who owns what (STATEMESH_ADDR; default "+defaultAddr+")")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "time for the whole command")
	f.StringVar(&a.app, "application", "", "application id the instances must have (default any)")
	f.StringVar(&a.caFile, "tls-ca", "", "PEM file with the authorities of the instances' certificates; turns TLS on")
	f.StringVar(&a.certFile, "tls-cert", "", "PEM file with a certificate to show")
	f.StringVar(&a.keyFile, "tls-key", "", "PEM file with its key")
	f.BoolVar(&a.plaintext, "plaintext", false, "connect without TLS beyond this machine: anybody on the way can read and change it")
	outputFlag(cmd)
}

// run connects, gives the command its time, and lets it ask.
func (a *askFlags) run(cmd *cobra.Command, p Process, ask func(ctx context.Context, s *session) error) error {
	if len(a.addrs) == 0 {
		a.addrs = strings.FieldsFunc(lookupEnv(p.Env, "STATEMESH_ADDR"), func(r rune) bool { return r == ',' })
	}
	if len(a.addrs) == 0 {
		a.addrs = []string{defaultAddr}
	}
	if a.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: want more than 0", a.timeout)}
	}
	conf := client.Config{Seeds: a.addrs, Application: a.app, AllowInsecure: a.plaintext, Timeout: a.timeout}
	if a.caFile != "" || a.certFile != "" || a.keyFile != "" {
		if a.plaintext {
			return usageError{errors.New("--plaintext contradicts --tls-*")}
		}
		src, err := certs.Load(certs.Files{CertFile: a.certFile, KeyFile: a.keyFile, CAFile: a.caFile}, nil)
		if err != nil {
			return usageError{err}
		}
		conf.TLS = src.Client("")
	}
	cl, err := client.New(conf)
	if err != nil {
		return usageError{err}
	}
	defer func() { _ = cl.Close() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	s := &session{Client: cl}
	if len(a.addrs) == 1 {
		s.opts = append(s.opts, client.Via(a.addrs[0]))
	}
	return otherQuery(a.hint(ask(ctx, s)))
}

// otherQuery adds the commands that a store answers, when it was asked by another.
func otherQuery(err error) error {
	e, ok := errors.AsType[*store.WrongKindError](err)
	if !ok {
		return err
	}
	commands := map[store.Kind]string{
		store.KindKeyValue: "get, multi-get, scan, count", store.KindTimestampedKeyValue: "get, multi-get, scan, count",
		store.KindWindow: "fetch, scan, count", store.KindTimestampedWindow: "fetch, scan, count",
		store.KindSession: "sessions, scan, count", store.KindVersioned: "get, multi-get, as-of, history, count without --exact",
	}[e.Kind]
	if commands == "" {
		return err
	}
	return fmt.Errorf("%w\nit answers: %s", err, commands)
}

// hint adds what to try when nobody could be asked and the connection ended as it does over a disagreement on TLS. The
// other side only hangs up, so this goes by how.
func (a *askFlags) hint(err error) error {
	if !errors.Is(err, client.ErrNoMap) {
		return err
	}
	hungUp := func(signs ...string) bool {
		return slices.ContainsFunc(signs, func(s string) bool { return strings.Contains(err.Error(), s) })
	}
	switch tls, shown := a.caFile != "" || a.certFile != "", a.certFile != ""; {
	case !tls && hungUp("server preface"):
		return fmt.Errorf("%w\nthe instances may want TLS: --tls-ca, and --tls-cert with --tls-key", err)
	case tls && hungUp("first record does not look like a TLS handshake"):
		return fmt.Errorf("%w\nthe instances may have no TLS: leave --tls-* out", err)
	case tls && !shown && hungUp("broken pipe", "reset by peer", "certificate required"):
		return fmt.Errorf("%w\nthe instances may want to see a certificate: --tls-cert and --tls-key", err)
	case shown && hungUp("broken pipe", "reset by peer", "unknown certificate", "bad certificate"):
		return fmt.Errorf("%w\nthe instances may not accept the certificate of --tls-cert: is it signed by their tls.ca.file?", err)
	default:
		return err
	}
}

// session is a connected client with the options of every read.
type session struct {
	*client.Client

	opts []client.Option
}

// readFlags are what the caller of a read insists on.
type readFlags struct {
	staleness, wait     time.Duration
	noCache, onlyActive bool
	uncommitted         bool
	partial             bool
	atLeast             []string
}

func (r *readFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&r.staleness, "max-staleness", 0, "oldest answer accepted, at least 1ms (default as the instance is configured)")
	f.BoolVar(&r.noCache, "no-cache", false, "accept no answer out of an instance's remote cache")
	f.BoolVar(&r.onlyActive, "only-active", false, "accept the owner's answer alone")
	f.BoolVar(&r.uncommitted, "uncommitted", false, "also show what the owner has processed and not yet committed")
	f.BoolVar(&r.partial, "partial", false, "when no copy can answer otherwise, accept what one has so far that is being restored; -o json says so")
	f.StringSliceVar(&r.atLeast, "at-least", nil, "the \"token\" of an earlier answer of this store, as -o json prints it: accept no older state")
	f.DurationVar(&r.wait, "wait", 0, "how long an instance may wait until it has what --at-least asks for")
}

// apply makes options of the flags, for reads of a store.
func (r *readFlags) apply(s *session, name string) error {
	switch {
	case r.staleness == 0:
	case r.staleness < time.Millisecond:
		return usageError{fmt.Errorf("--max-staleness %s: want at least 1ms", r.staleness)}
	default:
		s.opts = append(s.opts, client.MaxStaleness(r.staleness))
	}
	for _, text := range r.atLeast {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return usageError{fmt.Errorf("--at-least: no token: %w", err)}
		}
		of, t, err := client.DecodeToken(b)
		if err != nil {
			return usageError{fmt.Errorf("--at-least: %w", err)}
		}
		if string(of) != name {
			return usageError{fmt.Errorf("--at-least: it is a token of store %s", of)}
		}
		s.opts = append(s.opts, client.AtLeast(t))
	}
	if r.wait < 0 {
		return usageError{fmt.Errorf("--wait %s: want 0 or more", r.wait)}
	}
	if r.wait > 0 {
		s.opts = append(s.opts, client.Wait(r.wait))
	}
	if r.uncommitted {
		s.opts = append(s.opts, client.Isolation(store.ReadUncommitted))
	}
	if r.partial {
		s.opts = append(s.opts, client.Partial())
	}
	if r.noCache {
		s.opts = append(s.opts, client.NoCache())
	}
	if r.onlyActive {
		s.opts = append(s.opts, client.OnlyActive())
	}
	return nil
}
