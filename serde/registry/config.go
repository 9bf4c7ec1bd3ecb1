package registry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/statemesh/statemesh/serde"
)

// Config says which registry, and how it is used. The zero value of a field is its default.
type Config struct {
	// URLs of the registry's instances, http or https. When one cannot be reached the next is asked. Required.
	URLs []string
	// User and Password authenticate (HTTP basic); or Token does (bearer).
	User, Password string
	Token          string
	// TLS of the connections. Default: the system's authorities.
	TLS *tls.Config
	// AutoRegister registers the schema of a value whose subject does not have it yet. Default off: in production schemas
	// are reviewed before a program writes them.
	AutoRegister bool
	// Normalize lets the registry take schemas as equal that differ only in how they are written.
	Normalize bool
	// Subject names subjects. Default [TopicName].
	Subject SubjectName
	// Timeout of a request. Default 5s: the record in hand waits for it.
	Timeout time.Duration
	// RetryAfter is how long it holds that a schema is unknown or that the registry does not answer. Default 1s: a stream of
	// records that cannot be read costs a request a second, and a new schema is found that soon.
	RetryAfter time.Duration
}

// Validate reports everything that is wrong, joined.
func (c Config) Validate() error {
	var errs []error
	if len(c.URLs) == 0 {
		errs = append(errs, errors.New("registry: no urls"))
	}
	for _, raw := range c.URLs {
		if u, err := url.Parse(raw); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("registry: url %q: want http://host:port or https://host:port", raw))
		} else if u.User != nil {
			errs = append(errs, fmt.Errorf("registry: url of %s: user and password belong in User and Password", u.Host))
		}
	}
	if c.Token != "" && c.User != "" {
		errs = append(errs, errors.New("registry: token and user: want one of them"))
	}
	if c.Timeout < 0 || c.RetryAfter < 0 {
		errs = append(errs, errors.New("registry: timeout and retry after: want more than 0"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Subject == nil {
		c.Subject = TopicName
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	return c
}

func (c Config) options() []sr.ClientOpt {
	opts := []sr.ClientOpt{
		sr.URLs(c.URLs...), sr.UserAgent("statemesh"),
		sr.HTTPClient(&http.Client{Timeout: c.Timeout}),
	}
	if c.TLS != nil {
		opts = append(opts, sr.DialTLSConfig(c.TLS))
	}
	if c.User != "" {
		opts = append(opts, sr.BasicAuth(c.User, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, sr.BearerToken(c.Token))
	}
	return opts
}

// SubjectName names the subject under which the schema of one part of a topic's records is registered (upstream's
// SubjectNameStrategy). record is the full name of the Avro record or Protobuf message, or the title of the JSON Schema. topic
// is empty when the serde is bound to none.
type SubjectName func(topic string, part serde.Part, record string) (string, error)

// TopicName is "<topic>-key" or "<topic>-value" (upstream's TopicNameStrategy): one type per topic.
func TopicName(topic string, part serde.Part, _ string) (string, error) {
	if topic == "" {
		return "", errNoTopic
	}
	return topic + "-" + part.String(), nil
}

// RecordName is the name of the record (upstream's RecordNameStrategy): one set of versions for all topics.
func RecordName(_ string, _ serde.Part, record string) (string, error) {
	if record == "" {
		return "", errNoRecord
	}
	return record, nil
}

// TopicRecordName is "<topic>-<record>" (upstream's TopicRecordNameStrategy).
func TopicRecordName(topic string, _ serde.Part, record string) (string, error) {
	switch {
	case topic == "":
		return "", errNoTopic
	case record == "":
		return "", errNoRecord
	}
	return topic + "-" + record, nil
}

var (
	errNoTopic  = errors.New("the subject is named by the topic: take ForTopic of the serde")
	errNoRecord = errors.New("the subject is named by the record, and the schema has no name")
)
