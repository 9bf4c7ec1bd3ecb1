package serde

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// What may stand for a value of a format. Errors name types, not values.

func refuse(v any, want string) error { return fmt.Errorf("a %T is no %s", v, want) }

var errRange = errors.New("the number does not fit")

func toBytes(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, refuse(v, "bytes")
}

func toString(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", refuse(v, "string")
}

func toBool(v any) (bool, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	return false, refuse(v, "bool")
}

// toInt takes whole numbers of every type that are a T.
func toInt[T int16 | int32 | int64](v any) (T, error) {
	n, err := toInt64(v)
	if err != nil {
		return 0, err
	}
	if int64(T(n)) != n {
		return 0, errRange
	}
	return T(n), nil
}

func toInt64(v any) (int64, error) {
	if n, ok := v.(json.Number); ok {
		i, err := strconv.ParseInt(n.String(), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, errRange
		case err != nil:
			return 0, errors.New("want a whole number")
		}
		return i, nil
	}
	switch r := reflect.ValueOf(v); {
	case r.IsValid() && r.CanInt():
		return r.Int(), nil
	case r.IsValid() && r.CanUint():
		if r.Uint() > math.MaxInt64 {
			return 0, errRange
		}
		return int64(r.Uint()), nil
	case r.IsValid() && r.CanFloat():
		if !isWhole(r.Float()) {
			return 0, errors.New("want a whole number, and no float beyond 2^53")
		}
		return int64(r.Float()), nil
	}
	return 0, refuse(v, "whole number")
}

func toFloat64(v any) (float64, error) {
	if n, ok := v.(json.Number); ok {
		x, err := strconv.ParseFloat(n.String(), 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, errRange
		case err != nil:
			return 0, errors.New("want a number")
		}
		return x, nil
	}
	if r := reflect.ValueOf(v); r.IsValid() && r.CanFloat() {
		return r.Float(), nil
	}
	n, err := toInt64(v)
	if err != nil {
		return 0, refuse(v, "number")
	}
	if n > maxExact || n < -maxExact {
		return 0, errRange
	}
	return float64(n), nil
}

func toFloat32(v any) (float32, error) {
	x, err := toFloat64(v)
	if err != nil {
		return 0, err
	}
	if math.Abs(x) > math.MaxFloat32 && !math.IsInf(x, 0) {
		return 0, errRange
	}
	return float32(x), nil
}

func toUUID(v any) (uuid.UUID, error) {
	switch v := v.(type) {
	case uuid.UUID:
		return v, nil
	case string:
		if len(v) == uuidLen {
			if u, err := uuid.Parse(v); err == nil {
				return u, nil
			}
		}
		return uuid.UUID{}, errors.New("want 36 characters, as in 123e4567-e89b-12d3-a456-426614174000")
	}
	return uuid.UUID{}, refuse(v, "UUID")
}

func toTime(v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v, nil
	case string:
		if ms, err := strconv.ParseInt(v, 10, 64); err == nil {
			return time.UnixMilli(ms), nil
		}
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return t, nil
		}
		return time.Time{}, errors.New("want RFC 3339, as in 2013-01-01T10:15:00Z, or Unix milliseconds")
	}
	ms, err := toInt64(v)
	if err != nil {
		return time.Time{}, refuse(v, "instant")
	}
	return time.UnixMilli(ms), nil
}

func toJSON(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case json.RawMessage:
		return v, nil
	case []byte:
		return v, nil
	}
	b, err := JSON[any]().Encode(v)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return b, nil
}

func asString(text string) (any, error) { return text, nil }

func asNumber(text string) (any, error) { return json.Number(text), nil }

func asJSON(text string) (any, error) {
	raw := json.RawMessage(text)
	_, err := rawJSON().Decode(raw)
	return raw, errors.Unwrap(err)
}

func asBool(text string) (any, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, errors.New("want true or false")
}
