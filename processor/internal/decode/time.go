package decode

import (
	"strconv"
	"time"
)

// AsTime returns the instant that a field holds, in Unix milliseconds.
func (f Field) AsTime() (int64, error) {
	var ms int64
	switch f.Kind {
	case Missing:
		return 0, Undecodable(ReasonNoTime, "the field is missing")
	case Number:
		x, err := ParseNumber(f.Data)
		if err != nil || x != float64(int64(x)) {
			return 0, Undecodable(ReasonBadTime, "the field holds no whole number of milliseconds")
		}
		ms = int64(x)
	case Plain, Quoted:
		n, err := strconv.ParseInt(string(f.Data), 10, 64)
		if err != nil {
			at, err := time.Parse(time.RFC3339Nano, string(f.Data))
			if err != nil { // the error quotes the text
				return 0, Undecodable(ReasonBadTime, "%d bytes that are neither Unix milliseconds nor RFC 3339", len(f.Data))
			}
			n = at.UnixMilli()
		}
		ms = n
	default:
		return 0, Undecodable(ReasonBadTime, "the field holds no time")
	}
	if ms < 0 {
		return 0, Undecodable(ReasonBadTime, "a time before 1970")
	}
	return ms, nil
}

// AppendTime appends an instant of the years 0 to 9999 as a JSON string: RFC 3339 in UTC, with the digits of its fraction that it needs.
func AppendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, `"`+time.RFC3339Nano+`"`)
}

// AppendDuration appends a duration as a JSON string such as "1h30m0s".
func AppendDuration(b []byte, d time.Duration) []byte {
	b = append(b, '"')
	b = append(b, d.String()...)
	return append(b, '"')
}
