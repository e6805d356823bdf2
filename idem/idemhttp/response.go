package idemhttp

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Response is a response in the contract's form. Headers keep the handler's spelling, and
// stay in the map that the handler used, because gateways treat the two maps differently.
type Response struct {
	// Status is the HTTP status. Only 200 to 599 can be recorded.
	Status int
	// Headers have one value each.
	Headers map[string]string
	// MultiHeaders have any number of values each.
	MultiHeaders map[string][]string
	// Cookies are Set-Cookie values that the gateway takes apart from the headers.
	Cookies []string
	// Body of the handler's response, as Base64 text if Base64 is set.
	Body []byte
	// Base64 says that the gateway must decode Body.
	Base64 bool

	// unrecordable is why Body is not what the handler gave: it cannot be recorded.
	unrecordable error
}

// final reports whether the status is one that ends an exchange (RFC 9110 15).
func (r *Response) final() bool { return r.Status >= 200 && r.Status <= 599 }

// clone returns a deep copy.
func (r *Response) clone() *Response {
	c := *r
	c.Headers = maps.Clone(r.Headers)
	c.MultiHeaders = maps.Clone(r.MultiHeaders)
	for name, values := range c.MultiHeaders {
		c.MultiHeaders[name] = slices.Clone(values)
	}
	c.Cookies = slices.Clone(r.Cookies)
	c.Body = slices.Clone(r.Body)
	return &c
}

// addWithheld puts the headers and cookies that are not stored back into what the
// codec gave: the live response has them, except the headers of a replay.
func (r *Response) addWithheld(given *Response) {
	keep := given.keeps()
	for k, v := range given.Headers {
		if !keep(k) && !replayHeaders.has(k) {
			r.setHeader(k, v)
		}
	}
	for k, v := range given.MultiHeaders {
		if !keep(k) && !replayHeaders.has(k) {
			if r.MultiHeaders == nil {
				r.MultiHeaders = map[string][]string{}
			}
			r.MultiHeaders[k] = v
		}
	}
	r.Cookies = given.Cookies
}

// ofBody are headers about the body's bytes (RFC 9110 8.6 and 8.8.3,
// RFC 9530 and its predecessors).
var ofBody = headerSet{
	"content-length": true, "content-digest": true, "repr-digest": true, "digest": true,
	"content-md5": true, "etag": true, "accept-ranges": true, "content-range": true,
}

// dropStale removes the headers about the former body, if a hook of the service has changed the
// body and not them.
func (r *Response) dropStale(before *Response) {
	if bytes.Equal(r.Body, before.Body) && r.Base64 == before.Base64 {
		return
	}
	for k, v := range r.Headers {
		if ofBody.has(k) && before.Headers[k] == v {
			delete(r.Headers, k)
		}
	}
	for k, vs := range r.MultiHeaders {
		if ofBody.has(k) && slices.Equal(before.MultiHeaders[k], vs) {
			delete(r.MultiHeaders, k)
		}
	}
}

// dropHeaders removes the headers that are not kept.
func (r *Response) dropHeaders(keep func(name string) bool) {
	maps.DeleteFunc(r.Headers, func(name, _ string) bool { return !keep(name) })
	maps.DeleteFunc(r.MultiHeaders, func(name string, _ []string) bool { return !keep(name) })
}

// replaceHeader sets one of the contract's headers, and removes it in every other spelling.
func (r *Response) replaceHeader(name, value string) {
	for k := range r.Headers {
		if strings.EqualFold(k, name) {
			delete(r.Headers, k)
		}
	}
	for k := range r.MultiHeaders {
		if strings.EqualFold(k, name) {
			delete(r.MultiHeaders, k)
		}
	}
	r.setHeader(name, value)
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
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
