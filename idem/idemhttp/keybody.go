package idemhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idempotency/idem"
)

var (
	errNoString     = errors.New("its field is not a string")
	errTwoSpellings = errors.New("its field's name occurs in another case: send it once, in one spelling")
	errNotJSON      = errors.New("the key's field is read from it; send one JSON value in UTF-8, each name once in an object")
	errTooDeep      = fmt.Errorf("arrays and objects are nested more than %d deep; send a flatter structure", idem.MaxDepth)
)

// stringAt reads the string at a pointer of a JSON text, which costs about as much
// as reading the text. It reads all of it, and refuses what would make another
// reader find another key: duplicate names, invalid UTF-8, and on the way to the
// field a name that differs in case alone, which Go's encoding/json takes for it.
func stringAt(body []byte, pointer string) (value string, err error) {
	// A buffer, which the decoder reads where it is: of other readers it makes a copy.
	s := pointerSearch{Decoder: jsontext.NewDecoder(bytes.NewBuffer(body)), path: tokensOf(pointer)}
	found := false
	for first := true; first || s.StackDepth() > 0; first = false {
		t, err := s.ReadToken()
		if err == io.EOF && first {
			return "", ErrNoKey
		}
		if err != nil {
			return "", errNotJSON
		}
		if s.StackDepth() > idem.MaxDepth {
			return "", errTooDeep
		}
		here, err := s.arrives(t)
		if err != nil {
			return "", err
		}
		if !here {
			continue
		}
		switch t.Kind() {
		case '"':
			value, found = t.String(), true
		case 'n': // as good as absent
		default:
			return "", errNoString
		}
	}
	if _, err := s.ReadToken(); err != io.EOF {
		return "", errNotJSON
	}
	if !found {
		return "", ErrNoKey
	}
	return value, nil
}

// pointerSearch follows one pointer through the tokens of a text. It never builds
// the path of a token: that would cost its depth for each.
type pointerSearch struct {
	*jsontext.Decoder
	path []string
	// on counts the open arrays and objects that lie on the path, from the outermost.
	on int
	// next says that the value that follows is the path's next one, by its name.
	next bool
}

// arrives reports whether a token that was read is the value at the path's end, or
// the beginning of it.
func (s *pointerSearch) arrives(t jsontext.Token) (bool, error) {
	kind := t.Kind()
	depth := s.StackDepth()
	switch kind {
	case '}', ']':
		s.on = min(s.on, depth)
		return false, nil
	case '{', '[':
		depth-- // where the value itself lies
	}
	if depth == 0 {
		s.on = s.StackDepth()
		return false, nil
	}
	if s.on != depth || depth > len(s.path) {
		return false, nil
	}
	want := s.path[depth-1]
	in, n := s.StackIndex(depth)
	switch {
	case in == '[':
		var digits [20]byte
		if string(strconv.AppendInt(digits[:0], n-1, 10)) != want { // no copy
			return false, nil
		}
	case n%2 == 1: // a name
		name := t.String()
		if s.next = name == want; !s.next && strings.EqualFold(name, want) {
			return false, errTwoSpellings
		}
		return false, nil
	case !s.next:
		return false, nil
	}
	if depth == len(s.path) {
		return true, nil
	}
	s.on = s.StackDepth() // deeper by one if the value can be entered
	return false, nil
}

// tokensOf splits a valid pointer (RFC 6901).
func tokensOf(pointer string) []string {
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens
}
