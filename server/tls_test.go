package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write(name+".pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// issue writes a certificate with these names to files called name.
func (a *authority) issue(name string, serial int64, dns ...string) certs.Files {
	a.t.Helper()
	key := newKey(a.t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: dns, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	kder, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return certs.Files{
		CertFile: a.write(name+".crt", "CERTIFICATE", der), KeyFile: a.write(name+".key", "EC PRIVATE KEY", kder), CAFile: a.file,
	}
}

// secured is one instance that serves TLS on loopback.
func secured(t *testing.T, tlsCfg *TLS) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	table := router.NewTable()
	snap, err := router.NewSnapshot(router.Data{
		Application: "app", Epoch: 1, Instances: []router.Instance{{ID: "a", Endpoint: lis.Addr().String(), Active: []store.TaskID{{}}}},
		Stores: []router.StoreInfo{{Name: testStore, Kind: store.KindKeyValue, Partitions: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Publish(snap); err != nil {
		t.Fatal(err)
	}
	st := newFakeStores()
	st.put(0, []byte("k"), []byte("v"))
	srv, err := New(Config{Application: "app", Instance: "a", Endpoint: lis.Addr().String(), Listener: lis, TLS: tlsCfg},
		Deps{Stores: st, Peers: &mesh{t: t}, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return lis.Addr().String()
}

func ask(ctx context.Context, t *testing.T, addr string, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = statemeshv1.NewQueryServiceClient(conn).Get(ctx, get([]byte("k")))
	return err
}

func clientOf(t *testing.T, f certs.Files) credentials.TransportCredentials {
	t.Helper()
	src, err := certs.Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(src.Client(""))
}

// A peer is who shows a certificate with a name of the mesh; a client of the same authority is none, and a stranger gets
// no connection.
func TestPeersProveThemselves(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "mesh")
	server := ca.issue("server", 2, "mesh.internal")
	peer, client := ca.issue("peer", 3, "mesh.internal"), ca.issue("client", 4, "client.internal")
	stranger := newAuthority(t, "other").issue("stranger", 5, "mesh.internal")
	stranger.CAFile = ca.file // it would trust us
	fwd := wire.Forwarded{By: "b", Application: "app"}
	for _, names := range [][]string{nil, {"mesh.internal"}} { // by our own certificate's names, or those configured
		addr := secured(t, &TLS{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.file, MeshNames: names})
		for name, c := range map[string]certs.Files{"peer": peer, "client": client} {
			if err := ask(t.Context(), t, addr, clientOf(t, c)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := ask(fwd.Outgoing(t.Context()), t, addr, clientOf(t, peer)); err != nil {
			t.Errorf("a forwarded request of a peer: %v", err)
		}
		wantErr(t, ask(fwd.Outgoing(t.Context()), t, addr, clientOf(t, client)), statemeshv1.Reason_REASON_PERMISSION_DENIED)
		for name, creds := range map[string]credentials.TransportCredentials{
			"other authority": clientOf(t, stranger), "no certificate": clientOf(t, certs.Files{CAFile: ca.file}),
			"plain text": insecure.NewCredentials(),
		} {
			if err := wire.FromStatus(ask(t.Context(), t, addr, creds)); !errors.Is(err, wire.ErrUnreachable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		wrong := server
		wrong.CAFile = stranger.CertFile
		if err := wire.FromStatus(ask(t.Context(), t, addr, clientOf(t, wrong))); !errors.Is(err, wire.ErrUnreachable) {
			t.Errorf("a client that does not trust the server's authority: %v", err)
		}
	}
	// Clients without a certificate, where they are let in, are never peers.
	addr := secured(t, &TLS{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.file, OptionalClientCert: true})
	bare := clientOf(t, certs.Files{CAFile: ca.file})
	if err := ask(t.Context(), t, addr, bare); err != nil {
		t.Error(err)
	}
	wantErr(t, ask(fwd.Outgoing(t.Context()), t, addr, bare), statemeshv1.Reason_REASON_PERMISSION_DENIED)
}

// SC-06: replaced files are used from the next handshake on, HTTP/2 is still agreed on, client certificates are still
// required, and files that are broken leave the old ones in use.
func TestCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "mesh")
	f := ca.issue("server", 2, "mesh.internal")
	var log strings.Builder
	src, err := certs.Load(f, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		c, s := net.Pipe()
		defer func() { _, _ = c.Close(), s.Close() }()
		client := tls.Client(c, src.Client("mesh.internal"))
		server := tls.Server(s, src.Server(tls.RequireAndVerifyClientCert))
		errc := make(chan error, 1)
		go func() { errc <- server.HandshakeContext(t.Context()) }()
		if err := client.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-errc; err != nil {
			t.Fatal(err)
		}
		st := client.ConnectionState()
		if st.NegotiatedProtocol != "h2" || len(server.ConnectionState().PeerCertificates) == 0 {
			t.Fatalf("protocol %q, %d client certificates", st.NegotiatedProtocol, len(server.ConnectionState().PeerCertificates))
		}
		return st.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 2 {
		t.Fatalf("certificate %d", n)
	}
	ca.issue("server", 77, "mesh.internal")
	src.CheckNow()
	if n := serial(); n != 77 {
		t.Errorf("certificate %d after the reload, want 77", n)
	}
	if err := os.WriteFile(f.CertFile, []byte("half a cert"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		src.CheckNow()
		if n := serial(); n != 77 {
			t.Errorf("certificate %d after a broken file, want 77", n)
		}
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	ok := Config{Application: "app", Instance: "a", Endpoint: "h:1", Listen: "127.0.0.1:0"}
	deps := Deps{Stores: newFakeStores(), Peers: &mesh{t: t}, Table: router.NewTable()}
	if _, err := New(ok, deps); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"plain text beyond loopback": {func(c *Config) { c.Listen = "0.0.0.0:7070" }, "plain text"},
		"any address":                {func(c *Config) { c.Listen = ":7070" }, "plain text"},
		"a name":                     {func(c *Config) { c.Listen = "host.test:7070" }, "plain text"},
		"no endpoint":                {func(c *Config) { c.Endpoint = "" }, "endpoint"},
		"negative":                   {func(c *Config) { c.MaxBatchKeys = -1 }, "max batch keys: negative"},
		"no client authorities":      {func(c *Config) { c.TLS = &TLS{CertFile: "x", KeyFile: "y"} }, "authorities"},
		"no such files":              {func(c *Config) { c.TLS = &TLS{CertFile: "x", KeyFile: "y", ClientCAFile: "z"} }, "certificate x"},
	} {
		cfg := ok
		c.change(&cfg)
		if _, err := New(cfg, deps); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := ok
	all.Application, all.Instance, all.Endpoint = "", "", ""
	if _, err := New(all, deps); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all problems at once: %v", err)
	}
	if _, err := New(ok, Deps{}); err == nil {
		t.Error("nothing to work with")
	}
	insecureCfg := ok
	insecureCfg.Listen, insecureCfg.AllowInsecure = "0.0.0.0:0", true
	if _, err := New(insecureCfg, deps); err != nil {
		t.Error(err)
	}
}
