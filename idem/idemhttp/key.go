package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"
)

// Limits of a key, in characters.
const (
	// DefaultMinKey is the least length of a key: shorter ones are guessed or
	// collide. A UUID has 36 characters.
	DefaultMinKey = 16
	// MaxKey is the greatest length of a key.
	MaxKey = 255
)

// KeyFunc finds the key of a request where no header carries it. It returns
// [ErrNoKey] or "" if there is none, which is answered with 400; an error that
// matches [idem.ErrKeyInvalid] too; any other error goes to the runtime as it is.
// It must be safe for concurrent use.
type KeyFunc func(ctx context.Context, r *Request) (string, error)

// ErrNoKey says that the request has no key.
var ErrNoKey = errors.New("idemhttp: the request has no key")

// parseKey reads the key from its header: bare, or as a structured-field string
// without parameters. Both forms have one grammar, so that they name one key and
// neither can hide a comma, which is how fronts join repeated headers. The
// errors are for the client and do not repeat what it sent.
func parseKey(values []string, least int) (string, error) {
	if len(values) != 1 {
		return "", errors.New("the header was sent more than once")
	}
	key := strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{key})
		if err != nil {
			return "", errors.New("it starts with a quote and is not one structured-field string (RFC 9651)")
		}
		s, ok := item.Value.(string)
		if !ok || len(item.Params.Names()) > 0 {
			return "", errors.New("a structured-field string is taken without parameters only")
		}
		key = s
	}
	switch {
	case key == "":
		return "", errors.New("it is empty")
	case len(key) < least:
		return "", fmt.Errorf("it has %d characters: use at least %d, such as a random UUID", len(key), least)
	case len(key) > MaxKey:
		return "", fmt.Errorf("it has %d characters: use at most %d", len(key), MaxKey)
	}
	for i := 0; i < len(key); i++ {
		if !isKeyChar(key[i]) {
			return "", errors.New("use letters, digits and - . _ ~ : only, and send the header once")
		}
	}
	return key, nil
}

// isKeyChar allows RFC 3986's unreserved characters and the colon.
func isKeyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~' || c == ':'
}
