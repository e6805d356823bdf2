package fingerprint

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

func mustFingerprint(t *testing.T, text string, sel *Select) protocol.Fingerprint {
	t.Helper()
	f, err := JSON([]byte(text), sel)
	require.NoError(t, err, "%.200q", text)
	return f
}

// TestFingerprintGolden: these digests are in users' tables. A change needs a new
// version number.
func TestFingerprintGolden(t *testing.T) {
	// What is hashed, spelled out once: kind, length and text of the name, length
	// and text of the value.
	const zero = "\x00\x00\x00\x00\x00\x00\x00"
	sum := sha256.Sum256([]byte("j" + zero + "\x00" + zero + "\x0d" + `{"a":1,"b":2}`))
	byHand := protocol.Fingerprint("1:" + base64.RawURLEncoding.EncodeToString(sum[:]))
	require.Equal(t, byHand, mustFingerprint(t, `{"b":2,"a":1.0}`, nil))

	require.Equal(t, protocol.Fingerprint("1:oPA9-RgF-ShA3Dru0iyxMPguP-VsFSshCek6z1-Udq0"), byHand)
	require.Equal(t, protocol.Fingerprint("1:boa6hmDdoIaH08L_eIe-x99cxROZeStsQuWEV8Mo7m0"), Bytes([]byte(`{"a":1,"b":2}`)))
	require.Equal(t, protocol.Fingerprint("1:KxCudZNZlOFLdFV-OOatmOG0LQ4bRRi_UlagAJ2UkuM"),
		mustFingerprint(t, `{"b":2,"a":1,"c":[3]}`, &Select{Only: []string{"/c/0", "/a"}}))

	var b Builder
	b.Text("method", "POST")
	b.Text("route", "/orders/{id}")
	b.Map("path", map[string]string{"id": "7", "shop": "é"})
	b.Values("query", map[string][]string{"tag": {"x", "y"}, "dry": {}})
	b.JSON("body", []byte(`{"n":1e2}`), nil)
	b.Bytes("blob", []byte{0, 255})
	f, err := b.Sum()
	require.NoError(t, err)
	require.Equal(t, protocol.Fingerprint("1:OXkso-Fjvk84ul0pOzHEPJBEBEkZnDwpL1GifdXpVBA"), f)
}

func TestFingerprintJSON(t *testing.T) {
	same := []string{`{"a":[1,"é"],"b":-0}`, ` {"b":0.0, "a":[1.0,"\u00e9"]} `, "{\"b\":0e9,\n\"a\":[10e-1,\"\\u00E9\"]}"}
	for _, text := range same {
		require.Equal(t, mustFingerprint(t, same[0], nil), mustFingerprint(t, text, nil))
		require.Equal(t, mustFingerprint(t, same[0], nil), mustFingerprint(t, text, &Select{}))
	}
	different := []string{
		`{"a":[1,"é"],"b":0,"c":null}`, `{"a":[1,"é"]}`, `{"a":["é",1],"b":0}`, `{"a":[1,"e"],"b":0}`, `{"A":[1,"é"],"b":0}`,
		`{"a":["1","é"],"b":0}`, `{"a":[1,"é"],"b":null}`, `{"a":[1,"é"],"b":false}`, `{"a":[1,"é"],"b":""}`,
		`null`, `""`, `[]`, `[null]`, `{}`, `0`, `false`, `"null"`, `9007199254740993`, `9007199254740992`,
		`"1.000000000000000001"`, `"1.000000000000000002"`,
	}
	seen := map[protocol.Fingerprint]string{mustFingerprint(t, same[0], nil): same[0]}
	for _, text := range different {
		f := mustFingerprint(t, text, nil)
		require.NotContains(t, seen, f, text)
		require.Equal(t, protocol.MatchSame, f.Compare(f))
		seen[f] = text
		f = Bytes([]byte(text))
		require.NotContains(t, seen, f, "bytes are not JSON: %s", text)
		seen[f] = text
	}
	f, err := JSON([]byte(`{"a":1,"a":1}`), nil)
	require.ErrorIs(t, err, ErrNotCanonical)
	require.Empty(t, f)
}

func TestFingerprintBytes(t *testing.T) {
	require.Equal(t, Bytes(nil), Bytes([]byte{}))
	seen := map[protocol.Fingerprint]int{}
	for _, size := range []int{0, 1, 2, copyUpTo - 1, copyUpTo, copyUpTo + 1, 1 << 20} {
		raw := make([]byte, size)
		f := Bytes(raw)
		require.NotContains(t, seen, f)
		seen[f] = size
		// Copied or hashed directly: the digest is the same.
		var b Builder
		b.flush()
		b.Bytes("", raw)
		sum, err := b.Sum()
		require.NoError(t, err)
		require.Equal(t, f, sum)
		again, err := b.Sum()
		require.NoError(t, err)
		require.Equal(t, f, again)
	}
}

func TestFingerprintBuilderIsUnambiguous(t *testing.T) {
	type add func(b *Builder)
	text := func(name, value string) add { return func(b *Builder) { b.Text(name, value) } }
	raw := func(name, value string) add { return func(b *Builder) { b.Bytes(name, []byte(value)) } }
	doc := func(name, value string) add { return func(b *Builder) { b.JSON(name, []byte(value), nil) } }
	values := func(name string, v map[string][]string) add {
		return func(b *Builder) { b.Values(name, v) }
	}
	large := strings.Repeat("x", copyUpTo+1)
	lists := [][]add{
		{text("a", "b")}, {text("ab", "")}, {text("", "ab")}, {text("b", "a")},
		{text("a", "b"), text("c", "d")}, {text("c", "d"), text("a", "b")}, {text("a", "bc"), text("", "d")},
		{text("a", "b"), text("", "")}, {text("", ""), text("a", "b")}, {text("", "")},
		{raw("a", "b")}, {doc("a", `"b"`)}, {raw("a", `"b"`)}, {text("a", `"b"`)}, {doc("a", "1")},
		{doc("a", "1"), doc("a", "1")},
		{raw("a", "1")}, {text("a", large)}, {raw("a", large)}, {raw("a", large), text("a", "")},
		{raw("", large), text("a", "")},
		{values("a", nil)}, {values("b", nil)},
		{values("a", map[string][]string{"": nil})}, {values("a", map[string][]string{"": {""}})},
		{values("a", map[string][]string{"": {"", ""}})},
		{values("a", map[string][]string{"x": {"y"}})}, {values("a", map[string][]string{"x": {"y", "z"}})},
		{values("a", map[string][]string{"x": {"z", "y"}})},
		{values("a", map[string][]string{"x": {"y"}, "z": {}})}, {values("a", map[string][]string{"x": {}, "y": {}})},
		{values("a", map[string][]string{"x,y": {}})},
		{values("a", map[string][]string{"x": {"y,z"}})}, {values("a", map[string][]string{"x": {"y"}}), values("a", nil)},
	}
	seen := map[protocol.Fingerprint]int{}
	for i, list := range lists {
		var once, twice Builder
		for _, add := range list {
			add(&once)
			add(&twice)
		}
		f, err := once.Sum()
		require.NoError(t, err)
		if other, found := seen[f]; found {
			t.Fatalf("lists %d and %d have one fingerprint", other, i)
		}
		seen[f] = i
		again, err := twice.Sum()
		require.NoError(t, err)
		require.Equal(t, f, again)
	}

	var one, many Builder
	one.Map("q", map[string]string{"a": "1", "b": "2"})
	many.Values("q", map[string][]string{"b": {"2"}, "a": {"1"}})
	x, err := one.Sum()
	require.NoError(t, err)
	y, err := many.Sum()
	require.NoError(t, err)
	require.Equal(t, x, y, "a map is lists of one")
}

func TestFingerprintBuilderErrors(t *testing.T) {
	var empty Builder
	_, err := empty.Sum()
	require.ErrorAs(t, err, new(*protocol.ConfigError))

	var b Builder
	b.Text("a", "b")
	b.JSON("body", []byte(`[1e400]`), nil)
	b.JSON("more", []byte(`{`), nil)
	b.Text("c", "d")
	b.Bytes("e", make([]byte, copyUpTo+1))
	f, err := b.Sum()
	require.Empty(t, f)
	require.ErrorIs(t, err, ErrNotCanonical)
	require.ErrorContains(t, err, "at byte 1: a number is out of the range", "the first error stays")
}

func TestFingerprintCompare(t *testing.T) {
	a, b := Bytes([]byte("a")), Bytes([]byte("b"))
	digest := a[2:]
	fill := func(c string, n int) protocol.Fingerprint { return protocol.Fingerprint(strings.Repeat(c, n)) }
	for want, all := range map[protocol.Match][]protocol.Fingerprint{
		protocol.MatchSame:      {a},
		protocol.MatchDifferent: {b, "1:" + fill("A", 43)},
		protocol.MatchNewer:     {"2:" + digest, "10:another form", "999999:x"},
		protocol.MatchUnreadable: {
			"", ":", "1:", "2:", "1", digest,
			"0:" + digest, "01:" + digest, "02:" + digest, "-1:" + digest, "+2:" + digest, " 2:" + digest, "v2:" + digest,
			"99999999999999999999:x", a + "A", a + "=", a[:len(a)-1], "1:" + fill("+", 43), "1:" + fill("/", 43),
			"1:" + fill("A", 42) + "B", // bits beyond the digest
			"1:" + fill("A", 42) + "\n",
		},
	} {
		for _, stored := range all {
			require.Equal(t, want, a.Compare(stored), "%q", stored)
			if want == protocol.MatchUnreadable {
				require.Equal(t, want, stored.Compare(a), "%q", stored)
				require.Equal(t, want, stored.Compare(stored), "equal and damaged: %q", stored)
			}
		}
	}
	require.Zero(t, protocol.MatchUnreadable, "what was not compared fails closed")
}

// A call's fingerprint may have several versions: that of the record is compared, and the first one recorded.
func TestFingerprintOfSeveralVersions(t *testing.T) {
	sum := func(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
	one, two := protocol.FingerprintOf(1, sum("1")), protocol.FingerprintOf(2, sum("2"))
	four := protocol.FingerprintOf(4, sum("4"))
	require.Equal(t, one, Bytes(nil)[:2]+one[2:])
	for _, call := range []protocol.Fingerprint{
		one + " " + two + " " + four, four + " " + two + " " + one, two + " " + one + " " + four,
	} {
		require.Equal(t, call[:len(one)], call.Recorded())
		require.Equal(t, protocol.MatchSame, call.Compare(call.Recorded()))
		for _, stored := range []protocol.Fingerprint{one, two, four} {
			require.Equal(t, protocol.MatchSame, call.Compare(stored))
			require.Equal(t, protocol.MatchDifferent, call.Compare(stored[:2]+protocol.FingerprintOf(1, sum("x"))[2:]))
		}
		require.Equal(t, protocol.MatchNewer, call.Compare("3:x"), "it does not have that version")
		require.Equal(t, protocol.MatchNewer, call.Compare("5:x"))
		for _, damaged := range []protocol.Fingerprint{"", "1:x", one + " " + two, one + " ", " " + one} {
			require.Equal(t, protocol.MatchUnreadable, call.Compare(damaged), "%q", damaged)
		}
		for _, damaged := range []protocol.Fingerprint{call + " ", " " + call, call + " x", "1:x " + call,
			call + "  " + one} {
			require.Equal(t, protocol.MatchUnreadable, damaged.Compare(two), "%q", damaged)
		}
		keyed := call.Digested(func(f protocol.Fingerprint) [sha256.Size]byte { return sum("keyed " + string(f)) })
		for _, stored := range []protocol.Fingerprint{one, two, four} {
			version := int(stored[0] - '0')
			require.Equal(t, protocol.MatchSame, keyed.Compare(protocol.FingerprintOf(version, sum("keyed "+string(stored)))))
		}
		require.Equal(t, call[:2], keyed.Recorded()[:2])
	}
	require.Equal(t, protocol.MatchUnreadable, two.Compare(two), "this release does not make it")
}

func jsonOfSize(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"tenant":"acme","amount":1250.50,"order":9007199254740993,"lines":[`)
	for i := 0; b.Len() < size-40; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"B-%d","n":%d,"price":%d.25,"at":"2026-11-01T10:00:00Z"}`, i, i%7, i)
	}
	b.WriteString(`],"currency":"EUR"}`)
	return []byte(b.String())
}

func TestSelectCheck(t *testing.T) {
	for _, test := range []struct {
		name    string
		sel     *Select
		problem string
	}{
		{"nil", nil, ""},
		{"zero", &Select{}, ""},
		{"empty lists", &Select{Only: []string{}, Without: []string{}}, ""},
		{"only", &Select{Only: []string{"/a", "/ab", "/b/c", "/b/d", "/e/0", "/", "/m~1n~0o"}}, ""},
		{"whole input", &Select{Only: []string{""}}, ""},
		{"without", &Select{Without: []string{"/a", "/ab"}}, ""},
		{"both", &Select{Only: []string{"/a"}, Without: []string{"/b"}}, "both set"},
		{"no slash", &Select{Only: []string{"a"}}, `start it with a slash, as in "/a"`},
		{"no slash, second", &Select{Without: []string{"/b", "$.a"}}, "start it with a slash"},
		{"nothing left", &Select{Without: []string{""}}, "whole input"},
		{"twice", &Select{Only: []string{"/a", "/b", "/a"}}, `"/a" lies inside "/a"`},
		{"nested", &Select{Without: []string{"/a/b", "/a"}}, `"/a/b" lies inside "/a"`},
		{"inside everything", &Select{Only: []string{"", "/a"}}, `"/a" lies inside ""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.sel.Check()
			_, used := JSON([]byte(`{"a":{"b":1},"ab":1,"b":{"c":1,"d":1},"e":[1],"":1,"m/n~o":1}`), test.sel)
			if test.problem == "" {
				require.NoError(t, err)
				require.NoError(t, used)
				return
			}
			var wrong *protocol.ConfigError
			require.ErrorAs(t, err, &wrong)
			require.Contains(t, wrong.Problem, test.problem)
			require.Equal(t, err, used, "not checked before, it is found at use")
			require.NotErrorIs(t, err, ErrNotCanonical)
		})
	}
}

// Package canonical's tests hold what exactly is cut out of a text.
func TestSelectWithout(t *testing.T) {
	const doc = `{"z":[10,[20,21],{"k":30}],"b":{"c":1,"d":{"e":2}},"a":"x"}`
	sel := &Select{Without: []string{"/z/1", "/missing", "/b/d/e"}}
	const left = `{"z":[10,{"k":30}],"b":{"c":1,"d":{}},"a":"x"}`
	require.Equal(t, mustFingerprint(t, left, nil), mustFingerprint(t, doc, sel))
	require.Equal(t, []string{"/z/1", "/missing", "/b/d/e"}, sel.Without, "the caller's list is left alone")
	for _, scalar := range []string{"1", `"a"`, "null", "[]", "{}"} {
		require.Equal(t, mustFingerprint(t, scalar, nil), mustFingerprint(t, scalar, &Select{Without: []string{"/a", "/0"}}))
	}
	_, err := JSON([]byte(`{"a":1e400}`), &Select{Without: []string{"/a"}})
	require.ErrorIs(t, err, ErrNotCanonical, "the whole text is to be canonical")
}

func TestSelectOnly(t *testing.T) {
	sel := &Select{Only: []string{"/amount", "/to/iban", "/lines/1"}}
	base := mustFingerprint(t, `{"amount":10,"to":{"iban":"DE1","name":"A"},"lines":[0,{"a":1,"b":2}],"sent":"10:00"}`,
		sel)
	const same = `{"sent":null,"lines":[7,{"b":2.0,"a":1},8],"to":{"iban":"DE1"},"amount":1e1}`
	require.Equal(t, base, mustFingerprint(t, same, sel))
	require.Equal(t, base, mustFingerprint(t, same, &Select{Only: []string{"/lines/1", "/to/iban", "/amount"}}))
	require.Equal(t, []string{"/amount", "/to/iban", "/lines/1"}, sel.Only, "the caller's list is left alone")
	for _, other := range []string{
		`{"amount":11,"to":{"iban":"DE1"},"lines":[0,{"a":1,"b":2}]}`,
		`{"amount":10,"to":{"iban":"DE2"},"lines":[0,{"a":1,"b":2}]}`,
		`{"amount":10,"to":{"iban":"DE1"},"lines":[0,{"a":1}]}`,
		`{"amount":null,"to":{"iban":"DE1"},"lines":[0,{"a":1,"b":2}]}`,
	} {
		require.NotEqual(t, base, mustFingerprint(t, other, sel))
	}
	for in, missing := range map[string]string{
		`{"to":{"iban":"DE1"},"lines":[0,1]}`:               "/amount",
		`{"amount":10,"to":"DE1","lines":[0,1]}`:            "/to/iban",
		`{"amount":10,"to":{},"lines":[0,1]}`:               "/to/iban",
		`{"amount":10,"to":{"iban":"DE1"},"lines":[0]}`:     "/lines/1",
		`{"amount":10,"to":{"iban":"DE1"},"lines":{"0":0}}`: "/lines/1",
		`null`: "/amount",
		`[]`:   "/amount",
		`"x"`:  "/amount",
	} {
		f, err := JSON([]byte(in), sel)
		require.Empty(t, f)
		require.ErrorIs(t, err, ErrNotCanonical)
		require.ErrorContains(t, err, fmt.Sprintf("the field %q is missing", missing))
	}
	require.NotEqual(t,
		mustFingerprint(t, `{"a":"x","b":"y"}`, &Select{Only: []string{"/a"}}),
		mustFingerprint(t, `{"a":"x","b":"x"}`, &Select{Only: []string{"/b"}}), "the pointer counts, not the value alone")
	whole := &Select{Only: []string{""}}
	require.Equal(t, mustFingerprint(t, `{"a":1,"b":2}`, whole), mustFingerprint(t, `{"b":2,"a":1}`, whole))
	require.NotEqual(t, mustFingerprint(t, `{"a":1}`, whole), mustFingerprint(t, `{"a":2}`, whole))
	_, err := JSON([]byte(`{"amount":1,"amount":2}`), sel)
	require.ErrorContains(t, err, "occurs twice")
}
