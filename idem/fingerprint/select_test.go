package fingerprint

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

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

// What is cut out of which text is for package canonical to say.
func TestSelectWithout(t *testing.T) {
	const doc = `{"z":[10,[20,21],{"k":30}],"b":{"c":1,"d":{"e":2}},"a":"x"}`
	sel := &Select{Without: []string{"/z/1", "/missing", "/b/d/e"}}
	const left = `{"z":[10,{"k":30}],"b":{"c":1,"d":{}},"a":"x"}`
	require.Equal(t, mustFingerprint(t, left, nil), mustFingerprint(t, doc, sel))
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

// TestSelectIsShared runs with -race.
func TestSelectIsShared(t *testing.T) {
	only, without := &Select{Only: []string{"/b", "/a"}}, &Select{Without: []string{"/b"}}
	wantOnly, wantWithout := mustFingerprint(t, `{"a":1,"b":2}`, only), mustFingerprint(t, `{"a":1,"b":2}`, without)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				x, errX := JSON([]byte(`{"b":2,"a":1}`), only)
				y, errY := JSON([]byte(`{"b":3,"a":1}`), without)
				if errX != nil || errY != nil || x != wantOnly || y != wantWithout {
					t.Errorf("got %v, %v, %v, %v", x, errX, y, errY)
				}
			}
		})
	}
	group.Wait()
}
