package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms, as Kafka spells them in sasl.mechanism.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
)

// SASL is a user and how it proves itself. It prints without the password.
type SASL struct {
	// Mechanism is one of MechanismPlain, MechanismScramSHA256 and MechanismScramSHA512. PLAIN sends the password
	// itself: use it over TLS.
	Mechanism string
	User      string
	Password  string
}

// String names mechanism and user, never the password.
func (s SASL) String() string { return s.Mechanism + " as " + s.User }

// GoString is String: %#v prints no password either.
func (s SASL) GoString() string { return s.String() }

// LogValue is String.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s SASL) problems() (errs []error) {
	switch s.Mechanism {
	case MechanismPlain, MechanismScramSHA256, MechanismScramSHA512:
	default:
		errs = append(errs, fmt.Errorf("kafka SASL.Mechanism: %q, want %s", s.Mechanism,
			quoted([]string{MechanismPlain, MechanismScramSHA256, MechanismScramSHA512})))
	}
	if s.User == "" {
		errs = append(errs, errors.New("kafka SASL.User: required"))
	}
	if s.Password == "" {
		errs = append(errs, errors.New("kafka SASL.Password: required"))
	}
	return errs
}

func (s SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case MechanismScramSHA256:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case MechanismScramSHA512:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	default:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	}
}

// TLSFiles names PEM files. All empty means TLS with the system's roots and no certificate of our own.
type TLSFiles struct {
	// CA holds the certificates that brokers must be signed by; empty: the system's roots.
	CA string
	// Cert and Key identify us to the brokers (mutual TLS); both or none. They are read again at each handshake, so a
	// renewed certificate needs no restart.
	Cert, Key string
	// ServerName the broker's certificate must bear; empty: the host in the broker's address.
	ServerName string
}

// Load reads the files and returns what Config.TLS wants. Files that are missing or do not fit together are errors here,
// not at the first connection.
func (f TLSFiles) Load() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("kafka TLS CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka TLS CA %s: no certificate in it", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("kafka TLS: Cert and Key go together, only one is given")
	}
	if f.Cert == "" {
		return cfg, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("kafka TLS certificate %s: %w", f.Cert, err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return cfg, nil
}
