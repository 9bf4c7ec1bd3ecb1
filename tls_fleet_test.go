package statemesh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/statemesh/statemesh"
)

// Two instances that only talk TLS, and prove themselves to each other: a key of either by way of the other.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 4)
	files := certificates(t)
	start := func() *node {
		cfg := b.config(t)
		cfg.TLS = files
		return startNode(t, cfg)
	}
	fleet := []*node{start(), start()}
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	b.produce(t, "in", keys...)
	for _, n := range fleet {
		for _, k := range keys {
			eventually(t, func() error { return wantCount(t, n, "count", k, 1) })
		}
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", fleet[0].Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// HTTP/2 in plain text: an answer would begin with a SETTINGS frame, type 4; TLS sends an alert, or nothing.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 9)
	if n, _ := conn.Read(answer); n == 9 && answer[3] == 4 {
		t.Error("the API also answers in plain text")
	}
}

// certificates makes an authority and one certificate for 127.0.0.1, which every instance of the test shows.
func certificates(t *testing.T) statemesh.TLS {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "instance"}, DNSNames: []string{"mesh.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sign := func(c *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	return statemesh.TLS{
		CertFile: write("cert.pem", "CERTIFICATE", sign(leaf)), KeyFile: write("key.pem", "EC PRIVATE KEY", private),
		CAFile: write("ca.pem", "CERTIFICATE", sign(ca)), MeshNames: []string{"mesh.test"},
	}
}
