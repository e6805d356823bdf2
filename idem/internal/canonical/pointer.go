package canonical

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckPointer says what is wrong with a text that is no JSON pointer (RFC 6901). The
// empty pointer leads to the whole text.
func CheckPointer(pointer string) error {
	switch {
	case pointer != "" && pointer[0] != '/':
		return fmt.Errorf("%q is no JSON pointer: start it with a slash, as in %q", pointer, "/"+pointer)
	case !utf8.ValidString(pointer):
		return fmt.Errorf("%q is not valid UTF-8", pointer)
	}
	for rest := pointer; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return fmt.Errorf("%q has a tilde that is not ~0 or ~1: write ~0 for a tilde", pointer)
		}
		rest = after
	}
}

// firstToken splits a valid pointer that is not empty into its first reference token,
// unescaped, and the pointer from there on.
func firstToken(pointer string) (token, rest string) {
	token = pointer[1:]
	if i := strings.IndexByte(token, '/'); i >= 0 {
		token, rest = token[:i], token[i:]
	}
	if strings.IndexByte(token, '~') >= 0 {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return token, rest
}
