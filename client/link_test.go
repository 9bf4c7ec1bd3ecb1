package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
)

// A program that asks links no engine and no Kafka.
func TestLinksNoEngineAndNoKafka(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for dep := range strings.Lines(string(out)) {
		n++
		dep = strings.TrimSpace(dep)
		for _, bad := range []string{"badger", "ristretto", "franz-go", "statemesh/processor", "statemesh/server", "statemesh/store/"} {
			if strings.Contains(dep, bad) {
				t.Errorf("links %s", dep)
			}
		}
	}
	if n < 50 {
		t.Fatalf("only %d packages", n)
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"no seeds":             {Config{}, "seeds: none"},
		"no port":              {Config{Seeds: []string{"localhost"}}, `seed "localhost": want host:port`},
		"no host":              {Config{Seeds: []string{":7400"}}, `seed ":7400": want host:port`},
		"plain text elsewhere": {Config{Seeds: []string{"10.1.2.3:7400"}}, "seed 10.1.2.3:7400: plain text beyond loopback"},
		"a name is elsewhere":  {Config{Seeds: []string{"mesh.example:7400"}}, "plain text beyond loopback"},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, cfg := range []Config{
		{Seeds: []string{"127.0.0.1:1", "localhost:1", "[::1]:1"}},
		{Seeds: []string{"10.1.2.3:7400"}, AllowInsecure: true},
		{Seeds: []string{"10.1.2.3:7400"}, TLS: &tls.Config{MinVersion: tls.VersionTLS13}},
	} {
		c, err := New(cfg)
		if err != nil {
			t.Error(err)
			continue
		}
		_ = c.Close()
		_ = c.Close()
		if _, err := c.Get(t.Context(), counts, []byte("k")); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	// An instance that the map names elsewhere is not dialled in plain text either.
	p := NewPool(PoolConfig{})
	if _, err := p.Query("192.0.2.1:7400"); err == nil || !strings.Contains(err.Error(), "plain text") {
		t.Error(err)
	}
}

// tlsMember is one member of a mesh on a real port, behind a certificate.
func tlsMember(t *testing.T) (endpoint string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mesh"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := newMesh(t, 1, "a")
	m.put("k", "v")
	a := m.member("a")
	a.endpoint = lis.Addr().String()
	a.m.hosts[a.endpoint] = nil
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})))
	statemeshv1.RegisterQueryServiceServer(srv, a)
	statemeshv1.RegisterMetadataServiceServer(srv, a)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(lis) })
	t.Cleanup(func() { srv.Stop(); wg.Wait() })
	return a.endpoint, roots
}

func TestTLS(t *testing.T) {
	endpoint, roots := tlsMember(t)
	get := func(cfg Config) error {
		cfg.Seeds, cfg.Timeout = []string{endpoint}, time.Second
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, err = c.Get(t.Context(), counts, []byte("k"))
		return err
	}
	if err := get(Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}); err != nil {
		t.Fatal(err)
	}
	if err := get(Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}}); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Fatal(err)
	}
	if err := get(Config{}); !errors.Is(err, wire.ErrUnreachable) { // plain text to a TLS port
		t.Fatal(err)
	}
}

// GN-12: no proxy of the environment takes part. The environment is read once per process, so this needs its own.
func TestProxyIsIgnored(t *testing.T) {
	if os.Getenv("STATEMESH_TEST_PROXY") != "" {
		p := NewPool(PoolConfig{AllowInsecure: true})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_ = askPool(ctx, p, "192.0.2.1:7400") // reserved for documentation: nobody is there
		_ = p.Close()
		return
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			_ = c.Close()
		}
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyIsIgnored$")
	proxy := "http://" + lis.Addr().String()
	cmd.Env = append(os.Environ(), "STATEMESH_TEST_PROXY=1", "HTTPS_PROXY="+proxy, "HTTP_PROXY="+proxy, "ALL_PROXY="+proxy)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = lis.Close()
	wg.Wait()
	if n := len(asked); n != 0 {
		t.Fatalf("the proxy was asked %d times", n)
	}
}
