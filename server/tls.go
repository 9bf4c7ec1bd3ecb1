package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/store"
)

// TLS names the files a server proves itself with, and says who counts as a peer. Files may be replaced at any time.
type TLS struct {
	// CertFile and KeyFile: PEM, the certificate with its chain. Required.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of client certificates. Required, because peers prove themselves by one.
	ClientCAFile string
	// MeshNames are the names of which a peer's certificate must carry at least one, as a DNS or URI subject alternative
	// name, exactly: a certificate of the same authority is not enough, clients may have one too. Empty: the names that
	// this instance's own certificate carries at the time.
	MeshNames []string
	// OptionalClientCert also serves clients without a certificate. They are never taken for peers.
	OptionalClientCert bool
}

func (t *TLS) validate() error {
	var errs []error
	if t.CertFile == "" || t.KeyFile == "" {
		errs = append(errs, errors.New("tls: name the certificate and the key"))
	}
	if t.ClientCAFile == "" {
		errs = append(errs, errors.New("tls: name the authorities of client certificates: "+
			"without, instances cannot prove themselves to each other and no request can be forwarded"))
	}
	if slices.Contains(t.MeshNames, "") {
		errs = append(errs, errors.New("tls: a name of the mesh is empty"))
	}
	return errors.Join(errs...)
}

func (t *TLS) load(log *slog.Logger) (*certs.Source, error) {
	return certs.Load(certs.Files{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.ClientCAFile}, log)
}

func (t *TLS) credentials(src *certs.Source) credentials.TransportCredentials {
	auth := tls.RequireAndVerifyClientCert
	if t.OptionalClientCert {
		auth = tls.VerifyClientCertIfGiven
	}
	return credentials.NewTLS(src.Server(auth))
}

// provenPeer reports whether the caller has proven to be an instance of the mesh; if not, why.
//
// Over TLS: a verified certificate with one of the names of the mesh. Over plain text nobody can prove anything, so the
// rule is where plain text is served: on loopback (or within the process) whoever is on this machine counts, elsewhere,
// which has to be allowed explicitly, everybody does.
func (s *Server) provenPeer(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return denied("the connection is not known")
	}
	if s.cfg.TLS == nil {
		if s.cfg.AllowInsecure || fromThisMachine(p.Addr) {
			return nil
		}
		return denied("a plain text connection from another machine")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return denied("no verified certificate")
	}
	mesh := s.cfg.TLS.MeshNames
	if len(mesh) == 0 {
		mesh = s.certs.Names()
	}
	carried := certs.Names(info.State.VerifiedChains[0][0])
	if !slices.ContainsFunc(carried, func(n string) bool { return slices.Contains(mesh, n) }) {
		return denied("the certificate carries no name of the mesh")
	}
	return nil
}

func denied(reason string) error {
	return &store.PermissionDeniedError{Action: "forward a request", Reason: reason}
}

func fromThisMachine(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case nil:
		return false
	default:
		return a.Network() == inProcess || a.Network() == "unix"
	}
}
