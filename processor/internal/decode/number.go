package decode

import (
	"errors"
	"math"
	"strconv"
)

// ParseNumber reads a decimal number: digits, at most one sign, point and exponent. It is the nearest float64: integers
// up to 2^53 are exact. Infinities, NaN, hexadecimal forms and spaces are no numbers; what is beyond the range of
// float64 is refused too.
func ParseNumber(b []byte) (float64, error) {
	if x, ok := parseSmallInt(b); ok {
		return x, nil
	}
	for _, c := range b {
		if (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' && c != 'e' && c != 'E' {
			return 0, Undecodable(ReasonNumber, "%d bytes that are no decimal number", len(b))
		}
	}
	x, err := strconv.ParseFloat(string(b), 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, Undecodable(ReasonRange, "a number is beyond the range of float64")
	case err != nil:
		return 0, Undecodable(ReasonNumber, "%d bytes that are no decimal number", len(b))
	}
	return x, nil
}

// parseSmallInt reads what most numbers are: an integer of at most 15 digits, which a float64 holds exactly.
func parseSmallInt(b []byte) (float64, bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		if n == 0 {
			return math.Copysign(0, -1), true // as strconv has it
		}
		n = -n
	}
	return float64(n), true
}

// AppendNumber appends the shortest decimal form that reads back as x, in the notation of encoding/json. x is finite.
func AppendNumber(b []byte, x float64) []byte {
	abs := math.Abs(x)
	if abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		b = strconv.AppendFloat(b, x, 'e', -1, 64)
		// e-09 is written e-9.
		if n := len(b); n >= 4 && b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' {
			b[n-2] = b[n-1]
			b = b[:n-1]
		}
		return b
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}
