package idemlambda

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// pointer is a JSON pointer: its text, its unescaped reference tokens, and the
// document that it points into.
type pointer struct {
	doc    string
	text   string
	tokens []string
}

func mustPointer(doc, what, text string) pointer {
	bad := func(problem string) {
		panic(&idem.ConfigError{What: fmt.Sprintf("%s pointer %q", what, text), Problem: problem})
	}
	if !strings.HasPrefix(text, "/") {
		bad("write a JSON pointer such as \"/payment/id\", or idem.NoTenant for no tenant")
	}
	for i := 0; i < len(text); i++ {
		if text[i] == '~' && (i+1 == len(text) || text[i+1] != '0' && text[i+1] != '1') {
			bad("write ~0 for ~ and ~1 for / (RFC 6901)")
		}
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return pointer{doc, text, tokens}
}

func (p pointer) wrong(why string) error {
	return fmt.Errorf("%w: %s at %q of the %s", idem.ErrKeyInvalid, why, p.text, p.doc)
}

// scalar returns the string or integer that the pointer leads to.
func (p pointer) scalar(doc json.RawMessage) (string, error) {
	if !json.Valid(doc) {
		return "", p.wrong("there is no JSON, and so no value")
	}
	at := doc
	for i, token := range p.tokens {
		var err error
		if at, err = p.child(at, i, token); err != nil {
			return "", err
		}
	}
	at = bytes.TrimSpace(at)
	switch c := at[0]; {
	case c == '"':
		var s string
		err := json.Unmarshal(at, &s)
		if err == nil {
			// encoding/json makes one character of all that are none: half a surrogate
			// pair, and bytes that are not UTF-8. Different values would be one key.
			_, err = idem.FingerprintJSON(at, nil)
		}
		if err != nil {
			return "", p.wrong("there is no valid string")
		}
		if s == "" {
			return "", p.wrong("the string is empty")
		}
		return s, nil
	case c == '-' || c >= '0' && c <= '9':
		if bytes.ContainsAny(at, ".eE") {
			return "", p.wrong("the number is not written as an integer")
		}
		return string(at), nil
	case c == 'n':
		return "", p.wrong("the value is null")
	}
	return "", p.wrong("there is neither a string nor an integer")
}

// child returns the member of an object, by its exact name, or the element of an
// array that the token at the depth names. The document must be valid.
func (p pointer) child(doc json.RawMessage, depth int, token string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	open, _ := d.Token()
	switch open {
	case json.Delim('{'):
		return p.member(d, depth, token)
	case json.Delim('['):
		i, err := strconv.Atoi(token)
		// RFC 6901 allows neither signs nor leading zeros.
		for n := 0; err == nil && strconv.Itoa(i) == token && d.More(); n++ {
			var v json.RawMessage
			if err = d.Decode(&v); err == nil && n == i {
				return v, nil
			}
		}
	}
	return nil, p.wrong("there is no value")
}

// member reads an object to its end: what a pointer leads to must be what every
// reader finds. Some take the first of two members of one name, others the last;
// encoding/json fills a field from a member of any case.
func (p pointer) member(d *json.Decoder, depth int, token string) (json.RawMessage, error) {
	var found json.RawMessage
	var other string
	for d.More() {
		t, err := d.Token()
		name, _ := t.(string)
		var v json.RawMessage
		if err == nil {
			err = d.Decode(&v)
		}
		switch {
		case err != nil:
			return nil, p.wrong("there is no value that can be read")
		case name == token && found != nil:
			return nil, p.wrong("there is more than one value, and readers differ in which they take,")
		case name == token:
			found = v
		case strings.EqualFold(name, token):
			other = p.sibling(depth, name)
		}
	}
	switch {
	case found == nil && other != "":
		return nil, fmt.Errorf("%w: there is no value at %q of the %s, which has %q: pointers are case-sensitive", idem.ErrKeyInvalid, p.text, p.doc, other)
	case found == nil:
		return nil, p.wrong("there is no value")
	case other != "":
		return nil, fmt.Errorf("%w: the %s has %q beside %q, and a handler may take either for the other: send one of them", idem.ErrKeyInvalid, p.doc, other, p.text)
	}
	return found, nil
}

// sibling is the pointer with another name at the depth.
func (p pointer) sibling(depth int, name string) string {
	tokens := append([]string{}, p.tokens...)
	tokens[depth] = name
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(t)
	}
	return "/" + strings.Join(tokens, "/")
}
