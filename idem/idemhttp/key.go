package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// Limits of a key, in characters.
const (
	// DefaultMinKey is the least length of a key: shorter ones can be guessed or
	// collide. A UUID has 36 characters.
	DefaultMinKey = 16
	// MaxKey is the greatest length of a key.
	MaxKey = 255
)

// ErrNoKey is the error of a [KeyFunc] for a request without a key.
var ErrNoKey = errors.New("idemhttp: the request has no key")

// key finds the request's key as the options say, or returns why there is none.
func (c *Contract) key(ctx context.Context, r *Request, d *declared) (value string, no *situation, err error) {
	source := &d.Key
	if source.from != nil {
		value, err = source.from(ctx, r)
		switch {
		case errors.Is(err, ErrNoKey), err == nil && value == "":
			return "", &situation{code: CodeKeyMissing}, nil
		case errors.Is(err, idem.ErrKeyInvalid):
			return "", &situation{code: CodeKeyInvalid}, nil
		}
		return value, nil, err
	}
	if source.pointer != "" {
		var no *situation
		if value, no = bodyKey(r.Body, source.pointer); no != nil {
			return "", no, nil
		}
		err = c.checkKey(value, d.MinKey)
	} else {
		values := r.header(source.header)
		if len(values) == 0 {
			return "", &situation{code: CodeKeyMissing}, nil
		}
		if value, err = c.parseKey(values); err == nil {
			err = c.checkKey(value, d.MinKey)
		}
	}
	if err != nil {
		return "", &situation{code: CodeKeyInvalid, why: err.Error()}, nil
	}
	return value, nil, nil
}

// bodyKey reads the key from its field in the body, or returns why there is none.
func bodyKey(body []byte, pointer string) (string, *situation) {
	if len(bytes.TrimSpace(body)) == 0 {
		return "", &situation{code: CodeKeyMissing}
	}
	values, err := canonical.Values(body, "body", pointer)
	if err == nil {
		return values[0], nil
	}
	switch missing, ok := errors.AsType[*canonical.ValueError](err); {
	case !ok:
		return "", &situation{code: CodeNotCanonical, why: "the key is read from it, and " + err.Error()}
	case missing.Absent:
		return "", &situation{code: CodeKeyMissing}
	}
	return "", &situation{code: CodeKeyInvalid, why: err.Error()}
}

// parseKey reads the key from its header, unchanged in the Stripe profile and otherwise by
// [bareKey].
func (c *Contract) parseKey(values []string) (string, error) {
	if c.opts.Profile == Stripe && len(values) == 1 {
		return strings.Trim(values[0], " \t"), nil
	}
	return bareKey(values)
}

// bareKey reads the key from its header: bare, or as a structured-field string
// without parameters. Both forms have one grammar, so that they name one key. Neither can
// contain a comma, by which gateways join repeated headers. The errors are for the client
// and do not repeat what it sent.
func bareKey(values []string) (string, error) {
	if len(values) != 1 {
		return "", errors.New("the header was sent more than once")
	}
	key := strings.Trim(values[0], " \t")
	if !strings.HasPrefix(key, `"`) {
		return key, nil
	}
	item, err := httpsfv.UnmarshalItem([]string{key})
	if err != nil {
		return "", errors.New("it starts with a quote and is not one structured-field string (RFC 9651)")
	}
	s, ok := item.Value.(string)
	if !ok || len(item.Params.Names()) > 0 {
		return "", errors.New("a structured-field string is taken without parameters only")
	}
	return s, nil
}

// checkKey checks a key by the profile's grammar.
func (c *Contract) checkKey(key string, least int) error {
	if c.opts.Profile == Stripe {
		return checkKey(key, least, isPrintable, "printable ASCII")
	}
	return checkKey(key, least, isKeyChar, keyChars)
}

const keyChars = "letters, digits and - . _ ~ :"

func checkKey(key string, least int, allowed func(byte) bool, chars string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) < least:
		return fmt.Errorf("it has %d characters: use at least %d, such as a random UUID", len(key), least)
	case len(key) > MaxKey:
		return fmt.Errorf("it has %d characters: use at most %d", len(key), MaxKey)
	}
	for i := 0; i < len(key); i++ {
		if !allowed(key[i]) {
			return fmt.Errorf("use %s only, and send it once", chars)
		}
	}
	return nil
}

// isKeyChar allows RFC 3986's unreserved characters and the colon.
func isKeyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~' || c == ':'
}

func isPrintable(c byte) bool { return c >= ' ' && c <= '~' }
