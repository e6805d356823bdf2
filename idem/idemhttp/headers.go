package idemhttp

import (
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// headerSet is a set of header names in lower case.
type headerSet map[string]bool

// neverStored has the headers that belong to one exchange: cookies, what RFC 9110
// 7.6.1 calls hop-by-hop, what authenticates (RFC 9110 11, RFC 7615, RFC 8053), when
// and how long ago it was (RFC 9110 6.6.1, RFC 9111 5.1), and the contract's marks.
var neverStored = headerSet{
	"set-cookie": true, "set-cookie2": true,

	"connection": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,

	"www-authenticate": true, "proxy-authenticate": true, "optional-www-authenticate": true,
	"authentication-info": true, "proxy-authentication-info": true, "authentication-control": true,
	"authorization": true, "proxy-authorization": true,

	"date": true, "age": true,

	"idempotency-replayed": true, "idempotent-replayed": true,
	"idempotency-original-date": true, "idempotency-expires": true,
}

// replayHeaders say that a response is a replay and when it was recorded. A response has
// those of this contract or none: what a handler passes on from another service
// would be taken for them.
var replayHeaders = headerSet{
	"idempotency-replayed": true, "idempotent-replayed": true,
	"idempotency-original-date": true, "idempotency-expires": true,
}

// has looks up a name in any case.
func (s headerSet) has(name string) bool {
	var lower [64]byte
	if len(name) > len(lower) {
		return s[strings.ToLower(name)]
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return s[string(lower[:len(name)])] // no copy
}

// keeps returns a function that reports which headers of the response are stored:
// all but those that belong to one exchange and those that its Connection header names.
func (r *Response) keeps() func(name string) bool {
	var named []string
	note := func(v string) {
		for name := range strings.SplitSeq(v, ",") {
			named = append(named, strings.TrimSpace(name))
		}
	}
	for k, v := range r.Headers {
		if strings.EqualFold(k, "Connection") {
			note(v)
		}
	}
	for k, vs := range r.MultiHeaders {
		if strings.EqualFold(k, "Connection") {
			for _, v := range vs {
				note(v)
			}
		}
	}
	return func(name string) bool {
		for _, n := range named {
			if strings.EqualFold(n, name) {
				return false
			}
		}
		return !neverStored.has(name)
	}
}

// OnlyHeaders is an [Options.Redact] by which the named headers are stored, in any case, and no
// others. Content-Type and Content-Encoding are always stored: a body cannot be read without
// them. A name that is no header's, or that of a header that is never stored, such as Set-Cookie,
// panics.
func OnlyHeaders(names ...string) func(*Response) {
	kept := headerNames("OnlyHeaders", names)
	for name := range kept {
		if neverStored.has(name) {
			panic(&idem.ConfigError{
				What:    "idemhttp.OnlyHeaders",
				Problem: fmt.Sprintf("%q belongs to one exchange and is never stored: leave it out", name),
			})
		}
	}
	kept["content-type"], kept["content-encoding"] = true, true
	return func(r *Response) { r.dropHeaders(kept.has) }
}

// WithoutHeaders is an [Options.Redact] by which the named headers, in any case, are not stored. A
// name that is no header's panics.
func WithoutHeaders(names ...string) func(*Response) {
	dropped := headerNames("WithoutHeaders", names)
	return func(r *Response) { r.dropHeaders(func(name string) bool { return !dropped.has(name) }) }
}

func headerNames(what string, names []string) headerSet {
	s := headerSet{}
	for _, name := range names {
		if !isToken(name) {
			panic(&idem.ConfigError{What: "idemhttp." + what, Problem: fmt.Sprintf("%q is not a header name", name)})
		}
		s[strings.ToLower(name)] = true
	}
	return s
}
