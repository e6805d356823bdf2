package idemhttp

import (
	"strings"
	"unicode/utf8"
)

// Response is a response as the contract sees it. Headers keep the handler's
// spelling, and stay in the map that the handler chose: fronts treat the two
// differently.
type Response struct {
	// Status is the HTTP status. Only 200 to 599 can be recorded.
	Status int
	// Headers have one value each.
	Headers map[string]string
	// MultiHeaders have any number of values each.
	MultiHeaders map[string][]string
	// Cookies are Set-Cookie values that the front takes apart from the headers.
	Cookies []string
	// Body as the handler gave it: as Base64 text if Base64 is set.
	Body []byte
	// Base64 says that the front must decode Body.
	Base64 bool
}

// final reports whether the status is one that ends an exchange (RFC 9110 15).
func (r *Response) final() bool { return r.Status >= 200 && r.Status <= 599 }

// neverStored names, in lower case, the headers that belong to one exchange:
// cookies, what RFC 9110 7.6.1 calls hop-by-hop, what authenticates (RFC 9110 11,
// RFC 7615, RFC 8053), and the contract's own marks.
var neverStored = map[string]bool{
	"set-cookie": true, "set-cookie2": true,

	"connection": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,

	"www-authenticate": true, "proxy-authenticate": true, "optional-www-authenticate": true,
	"authentication-info": true, "proxy-authentication-info": true, "authentication-control": true,
	"authorization": true, "proxy-authorization": true,

	"idempotency-replayed": true, "idempotency-expires": true,
}

// keeps returns a function that tells which headers are stored: all but those
// never stored and those that the Connection header names.
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
		return !neverStored[strings.ToLower(name)]
	}
}

// addWithheld puts the headers and cookies that are not stored back into what the
// codec gave: the live response has them.
func (r *Response) addWithheld(given *Response) {
	keep := given.keeps()
	for k, v := range given.Headers {
		if !keep(k) {
			r.setHeader(k, v)
		}
	}
	for k, v := range given.MultiHeaders {
		if !keep(k) {
			if r.MultiHeaders == nil {
				r.MultiHeaders = map[string][]string{}
			}
			r.MultiHeaders[k] = v
		}
	}
	r.Cookies = given.Cookies
}

func (r *Response) setHeader(name, value string) {
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	r.Headers[name] = value
}

// toLatin1 makes a string of arbitrary bytes one of valid UTF-8, a code point for
// each byte (ISO 8859-1, as HTTP once read headers): JSON would replace invalid
// bytes. ASCII stays as it is.
func toLatin1(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// fromLatin1 is the inverse of toLatin1, and false for what it never makes.
func fromLatin1(s string) (string, bool) {
	if isASCII(s) {
		return s, true
	}
	var b strings.Builder
	for _, r := range s {
		if r > 0xff {
			return "", false
		}
		b.WriteByte(byte(r))
	}
	return b.String(), true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
