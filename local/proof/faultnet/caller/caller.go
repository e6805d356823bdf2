// Package caller tells a faulty network which process a call comes from. It is apart so
// that compiled functions do not reach test code.
package caller

import (
	"net/http"
	"os"
	"strconv"
)

// Header bears the id of the calling process.
const Header = "X-Pid"

// Transport adds [Header] to every request.
type Transport struct{ http.RoundTripper }

// RoundTrip sends a copy of the request with this process's id.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(Header, strconv.Itoa(os.Getpid()))
	return t.RoundTripper.RoundTrip(r)
}
