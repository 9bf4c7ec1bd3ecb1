package decode

// AppendKeyPart appends one of several values of a key, which are joined by "/".
func AppendKeyPart[T ~string | ~[]byte](b []byte, v T) []byte {
	for i := range len(v) {
		switch v[i] {
		case '%':
			b = append(b, "%25"...)
		case '/':
			b = append(b, "%2F"...)
		default:
			b = append(b, v[i])
		}
	}
	return b
}
