package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Files names PEM files. CertFile and KeyFile come together; a client that shows no certificate has neither.
type Files struct {
	CertFile, KeyFile string
	// CAFile holds the authorities that the other end's certificate must come from. Empty: a server asks for no client
	// certificate, a client takes the system's authorities.
	CAFile string
}

// checkInterval is how often files are looked at, at most: handshakes come in bursts, and a certificate that is a second
// late is in time.
const checkInterval = time.Second

// Source is what the files held when they were last whole. Safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger

	mu      sync.Mutex // guards the rest; file reads under it are short and rare
	checked time.Time
	stamp   string
	broken  string // the stamp that could not be loaded, so that it is reported once
	cur     material
}

type material struct {
	cert  *tls.Certificate // nil: none
	names []string         // of cert
	pool  *x509.CertPool   // nil: none
}

// Load reads the files. Later changes are picked up by handshakes; files that cannot be used are reported once to log
// and leave what there is in use.
func Load(files Files, log *slog.Logger) (*Source, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if (files.CertFile == "") != (files.KeyFile == "") {
		return nil, errors.New("tls: certificate and key come together")
	}
	m, err := read(files)
	if err != nil {
		return nil, err
	}
	return &Source{files: files, log: log, checked: time.Now(), stamp: stamp(files), cur: m}, nil
}

// Names are the names that the certificate in use carries. Shared: not to be changed.
func (s *Source) Names() []string { return s.current().names }

// Names are the DNS and URI subject alternative names of c.
func Names(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return names
}

// Server returns the configuration of a server. auth says what is asked of clients when there is a CAFile.
func (s *Source) Server(auth tls.ClientAuthType) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Named here because the configuration of a connection replaces this one, and HTTP/2 must be agreed on.
		NextProtos: []string{"h2"},
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := s.current()
		if m.cert == nil {
			return nil, errors.New("tls: no certificate")
		}
		c := base.Clone()
		c.GetConfigForClient = nil
		c.Certificates = []tls.Certificate{*m.cert}
		if m.pool != nil {
			c.ClientAuth, c.ClientCAs = auth, m.pool
		}
		return c, nil
	}
	return base
}

// Client returns the configuration of a client. With a CAFile, the server's certificate is verified against what the
// file holds at the handshake; serverName, if set, is the name it must carry instead of the one that was dialled.
func (s *Source) Client(serverName string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if m := s.current(); m.cert != nil {
				return m.cert, nil
			}
			return &tls.Certificate{}, nil
		},
	}
	if s.files.CAFile != "" {
		// crypto/tls has no hook that supplies authorities per handshake to a client, so the same verification is done
		// here with the authorities of now. VerifyConnection runs on resumed sessions too.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(st tls.ConnectionState) error {
			return verify(st, s.current().pool)
		}
	}
	return c
}

// CheckNow looks at the files at once, whenever the last look was.
func (s *Source) CheckNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check()
}

// verify checks the server's chain and name as crypto/tls does.
func verify(st tls.ConnectionState, pool *x509.CertPool) error {
	if len(st.PeerCertificates) == 0 {
		return errors.New("tls: the server shows no certificate")
	}
	opts := x509.VerifyOptions{Roots: pool, DNSName: st.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range st.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := st.PeerCertificates[0].Verify(opts)
	return err
}

// current returns what to use, after a look at the files if it is time for one.
func (s *Source) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checked) < checkInterval {
		return s.cur
	}
	return s.check()
}

// check looks at the files. Called with mu held.
func (s *Source) check() material {
	s.checked = time.Now()
	now := stamp(s.files)
	if now == s.stamp || now == s.broken {
		return s.cur
	}
	m, err := read(s.files)
	if err != nil {
		s.broken = now
		s.log.Warn("certificate files changed and cannot be used, the old ones stay in use", "error", err)
		return s.cur
	}
	s.cur, s.stamp, s.broken = m, now, ""
	s.log.Info("certificates reloaded", "file", s.files.CertFile)
	return s.cur
}

func read(f Files) (material, error) {
	var m material
	if f.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return m, fmt.Errorf("tls: certificate %s, key %s: %w", f.CertFile, f.KeyFile, err)
		}
		m.cert, m.names = &cert, Names(cert.Leaf)
	}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return m, fmt.Errorf("tls: authorities: %w", err)
		}
		m.pool = x509.NewCertPool()
		if !m.pool.AppendCertsFromPEM(pem) {
			return m, fmt.Errorf("tls: authorities %s: no certificate in it", f.CAFile)
		}
	}
	return m, nil
}

// stamp tells one version of the files from another. Links are followed: that is how mounted secrets are replaced.
func stamp(f Files) string {
	var b strings.Builder
	for _, name := range []string{f.CertFile, f.KeyFile, f.CAFile} {
		if name == "" {
			continue
		}
		if fi, err := os.Stat(name); err != nil {
			fmt.Fprintf(&b, "%s: %v;", name, err)
		} else {
			fmt.Fprintf(&b, "%s %d %d;", name, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return b.String()
}
