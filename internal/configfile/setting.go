package configfile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/statemesh/statemesh/internal/nearest"
)

// Setting is one key of the configuration. The table of all of them ([Settings]) is the only place that knows a key:
// parsing, environment, `statemesh config` and docs/config.md follow it.
type Setting struct {
	// Name as in the file, upstream's where the meaning is upstream's.
	Name string
	// Type as people read it: "string", "list", "integer", "bytes", "duration", "boolean", "file", or the choices.
	Type string
	// Default as written in the file; prose in brackets where it depends on something.
	Default string
	// Meaning is one or two sentences.
	Meaning string
	// Secret values are never printed.
	Secret bool

	set func(*draft, string) error
	get func(*draft) string
	// list settings take a sequence in the file; all others a scalar.
	list bool
}

// Env is the environment variable that overrides the setting: STATEMESH_ and the name in capitals, points as underscores.
func (s Setting) Env() string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Name))
}

// EnvPrefix begins every environment variable of ours.
const EnvPrefix = "STATEMESH_"

// The constructors below make the table short: name, default, where it goes, meaning.

func text(name, def string, at func(*draft) *string, meaning string) Setting {
	return Setting{
		Name: name, Type: "string", Default: def, Meaning: meaning,
		set: func(d *draft, v string) error { *at(d) = v; return nil },
		get: func(d *draft) string { return *at(d) },
	}
}

func file(name, def string, at func(*draft) *string, meaning string) Setting {
	s := text(name, def, at, meaning)
	s.Type = "file"
	return s
}

func secret(name string, at func(*draft) *string, meaning string) Setting {
	s := text(name, "", at, meaning)
	s.Secret = true
	return s
}

func list(name, def string, at func(*draft) *[]string, meaning string) Setting {
	return Setting{
		Name: name, Type: "list", Default: def, Meaning: meaning, list: true,
		set: func(d *draft, v string) error {
			*at(d) = nil
			for item := range strings.SplitSeq(v, ",") {
				if item = strings.TrimSpace(item); item != "" {
					*at(d) = append(*at(d), item)
				}
			}
			return nil
		},
		get: func(d *draft) string { return strings.Join(*at(d), ",") },
	}
}

// pairs takes name=value, several of them separated by commas.
func pairs(name string, at func(*draft) *map[string]string, meaning string) Setting {
	return Setting{
		Name: name, Type: "list", Meaning: meaning, list: true,
		set: func(d *draft, v string) error {
			m := make(map[string]string)
			for item := range strings.SplitSeq(v, ",") {
				if item = strings.TrimSpace(item); item == "" {
					continue
				}
				k, value, ok := strings.Cut(item, "=")
				if k, value = strings.TrimSpace(k), strings.TrimSpace(value); !ok || k == "" || value == "" {
					return fmt.Errorf("%q: want name=value", item)
				}
				if _, twice := m[k]; twice {
					return fmt.Errorf("%q: %s is given twice", item, k)
				}
				m[k] = value
			}
			*at(d) = m
			return nil
		},
		get: func(d *draft) string {
			var items []string
			for _, k := range slices.Sorted(maps.Keys(*at(d))) {
				items = append(items, k+"="+(*at(d))[k])
			}
			return strings.Join(items, ",")
		},
	}
}

// choice takes one of the named values; upper and lower case are the same, as upstream has both.
func choice[T ~string](name, def string, at func(*draft) *T, values []T, meaning string) Setting {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return Setting{
		Name: name, Type: strings.Join(names, " | "), Default: def, Meaning: meaning,
		set: func(d *draft, v string) error {
			i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, v) })
			if i < 0 {
				err := fmt.Errorf("%q is not one of %s", v, strings.Join(names, ", "))
				if near := nearest.Of(v, names); near != "" {
					err = fmt.Errorf("%w; did you mean %s?", err, near)
				}
				return err
			}
			*at(d) = values[i]
			return nil
		},
		get: func(d *draft) string { return string(*at(d)) },
	}
}

func boolean(name, def string, at func(*draft) *bool, meaning string) Setting {
	return Setting{
		Name: name, Type: "boolean", Default: def, Meaning: meaning,
		set: func(d *draft, v string) (err error) { *at(d), err = parseBool(v); return err },
		get: func(d *draft) string { return strconv.FormatBool(*at(d)) },
	}
}

// parseBool reads true and false, in any letters, and nothing that only looks like them.
func parseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%q is neither true nor false", v)
	}
}

func integer[T ~int | ~int32 | ~int16 | ~int64](name, def string, lo, hi int64, at func(*draft) *T, meaning string) Setting {
	return Setting{
		Name: name, Type: "integer", Default: def, Meaning: meaning,
		set: func(d *draft, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is no whole number", v)
			}
			if n < lo || n > hi {
				return fmt.Errorf("%d is not within %d and %d", n, lo, hi)
			}
			if n == 0 {
				return errZero
			}
			*at(d) = T(n)
			return nil
		},
		get: func(d *draft) string { return strconv.FormatInt(int64(*at(d)), 10) },
	}
}

// number takes a decimal number.
func number(name, def string, at func(*draft) *float64, meaning string) Setting {
	return Setting{
		Name: name, Type: "number", Default: def, Meaning: meaning,
		set: func(d *draft, v string) error {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
				return fmt.Errorf("%q is no number", v)
			}
			if n == 0 {
				return errZero
			}
			*at(d) = n
			return nil
		},
		get: func(d *draft) string { return strconv.FormatFloat(*at(d), 'g', -1, 64) },
	}
}

// errZero refuses 0: in [statemesh.Config] it stands for the default, which is not what somebody means who writes it.
var errZero = errors.New("0 is not possible; remove the line for the default")

// offAtZero lets 0 mean what people mean by it where a negative value switches something off (CA-03).
func offAtZero(s Setting) Setting {
	set := s.set
	s.set = func(d *draft, v string) error {
		if err := set(d, v); !errors.Is(err, errZero) {
			return err
		}
		return set(d, "-1")
	}
	s.Meaning += "; 0: off."
	return s
}

// count takes a number from 0 up, where 0 is a value like any other.
func count(name, def string, hi int64, at func(*draft) *int, meaning string) Setting {
	s := integer(name, def, 0, hi, at, meaning)
	set := s.set
	s.set = func(d *draft, v string) error {
		err := set(d, v)
		if errors.Is(err, errZero) {
			*at(d) = 0
			return nil
		}
		return err
	}
	return s
}

// size takes bytes as a number or with a unit of 1024: 512KiB, 64MiB, 2GiB (KB, MB and GB are read as 1024 too, as
// people mean them in this place).
func size[T ~int | ~int32 | ~int64](name, def string, at func(*draft) *T, meaning string) Setting {
	return Setting{
		Name: name, Type: "bytes", Default: def, Meaning: meaning,
		set: func(d *draft, v string) error {
			n, err := parseBytes(v)
			if err != nil {
				return err
			}
			if int64(T(n)) != n {
				return fmt.Errorf("%s is too large", v)
			}
			if n == 0 {
				return errZero
			}
			*at(d) = T(n)
			return nil
		},
		get: func(d *draft) string { return formatBytes(int64(*at(d))) },
	}
}

// duration takes a Go duration, or a bare number, which counts milliseconds as upstream's *.ms keys do.
func duration(name, def string, at func(*draft) *time.Duration, meaning string) Setting {
	return Setting{
		Name: name, Type: "duration", Default: def, Meaning: meaning,
		set: func(d *draft, v string) error {
			t, err := parseDuration(v)
			if err != nil {
				return err
			}
			if t == 0 && def != "0s" {
				return errZero
			}
			*at(d) = t
			return nil
		},
		get: func(d *draft) string { return at(d).String() },
	}
}

func parseDuration(v string) (time.Duration, error) {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		if n > math.MaxInt64/int64(time.Millisecond) || n < math.MinInt64/int64(time.Millisecond) {
			return 0, fmt.Errorf("%s milliseconds are more than a duration can hold", v)
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration; write 500ms, 30s, 5m, or a number of milliseconds", v)
	}
	return d, nil
}

var byteUnits = []struct {
	suffix string
	factor int64
}{{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"b", 1}, {"", 1}}

func parseBytes(v string) (int64, error) {
	lower := strings.ToLower(strings.TrimSpace(v))
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil {
			break
		}
		if n < 0 && n != -1 {
			return 0, fmt.Errorf("%q is negative", v)
		}
		if n > math.MaxInt64/u.factor {
			return 0, fmt.Errorf("%q is too large", v)
		}
		return n * u.factor, nil
	}
	return 0, fmt.Errorf("%q is no size; write 65536, 64KiB, 16MiB or 2GiB", v)
}

func formatBytes(n int64) string {
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
