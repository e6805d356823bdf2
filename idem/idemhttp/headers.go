package idemhttp

import (
	"maps"
	"slices"
	"strings"
)

// headerSet is a set of header names in lower case: those that are true, and with others
// all that are not in it.
type headerSet map[string]bool

// others, which is no header's name, says whether a set has the names that it does not list.
const others = ""

// ofMeaning are the headers without which nobody can read a body (RFC 9110 8.3 and 8.4).
var ofMeaning = []string{"content-type", "content-encoding"}

// but returns the set of all names that are not to be kept.
func (s headerSet) but(keep []string) headerSet {
	if keep == nil {
		return s
	}
	s = maps.Clone(s)
	s[others] = true
	for _, name := range slices.Concat(keep, ofMeaning) {
		s[strings.ToLower(name)] = false
	}
	return s
}

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

// marks say that a response is a replay and when it was recorded. A response has
// those of this contract or none: what a handler passes on from another service
// would be taken for them.
var marks = headerSet{
	"idempotency-replayed": true, "idempotent-replayed": true,
	"idempotency-original-date": true, "idempotency-expires": true,
}

// with returns the set with more names.
func (s headerSet) with(names []string) headerSet {
	if len(names) == 0 {
		return s
	}
	s = maps.Clone(s)
	for _, name := range names {
		s[strings.ToLower(name)] = true
	}
	return s
}

// has looks up a name in any case.
func (s headerSet) has(name string) bool {
	var lower [64]byte
	if len(name) > len(lower) {
		in, listed := s[strings.ToLower(name)]
		return in || !listed && s[others]
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	in, listed := s[string(lower[:len(name)])] // no copy
	return in || !listed && s[others]
}

// keeps returns a function that tells which headers of the response are stored:
// all but those never stored and those that its Connection header names.
func (r *Response) keeps(never headerSet) func(name string) bool {
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
		return !never.has(name)
	}
}
