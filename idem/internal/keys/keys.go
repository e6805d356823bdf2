// Package keys judges the keys that callers choose.
package keys

import "strings"

// Digits is the least number of digits, without leading zeros, of a number that counts as the number of something, such
// as an order's. A shorter one may be a counter, which begins again.
const Digits = 8

// Guessable reports whether two callers may well choose the key: it is one repeated character, or a number of
// fewer than [Digits] digits, alone or after a word, such as req-1. Separators do not count as characters. A word is
// short or ends in a separator, and has neither digits nor, after its first letter, both cases: the beginning of a
// random key is none.
func Guessable(key string) bool {
	if oneCharacter(key) {
		return true
	}
	word := strings.TrimRight(key, digits)
	number := key[len(word):]
	if number == "" || len(strings.TrimLeft(number, "0")) >= Digits || strings.ContainsAny(word, digits) {
		return false
	}
	short := len(word) < Digits || !isAlphanumeric(rune(word[len(word)-1]))
	return short && (word == "" || oneCase(word[1:]))
}

const digits = "0123456789"

func oneCharacter(key string) bool {
	var first rune
	for _, r := range key {
		switch {
		case !isAlphanumeric(r):
		case first == 0:
			first = r
		case r != first:
			return false
		}
	}
	return true
}

// oneCase reports whether a text has no letters of both cases.
func oneCase(text string) bool { return text == strings.ToLower(text) || text == strings.ToUpper(text) }

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > '~'
}
