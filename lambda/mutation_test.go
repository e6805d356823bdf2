package idemlambda

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// mutations is how many changed events each gateway gets.
var mutations = func() int {
	if os.Getenv("IDEM_LONG") == "1" {
		return 5000
	}
	return 1000
}()

var keyGrammar = regexp.MustCompile(`^[A-Za-z0-9._~:-]{16,255}$`)

// Events that no service sends: no panic, always an answer, and whatever reaches
// the table matches the key's grammar. The seed is fixed, so that every run is the
// same.
func TestMutatedEvents(t *testing.T) {
	for kind := range functions {
		t.Run(kind, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var seeds []any
			for _, name := range samples.Names() {
				if strings.HasPrefix(name, kind+"-") {
					seeds = append(seeds, decoded[any](t, name))
				}
			}
			store, n := memory(), 0
			watched := idemtest.NewFaults(store)
			h := lambda.NewHandler(functions[kind](newEngine(t, watched), idemhttp.AnyRoute(charge),
				idemhttp.SingleTenant, nil, &n))
			answered := 0
			for range mutations {
				event := seeds[random.IntN(len(seeds))]
				for range 1 + random.IntN(4) {
					event = mutated(random, event)
				}
				raw, err := json.Marshal(event)
				require.NoError(t, err)
				if check(t, h, raw) {
					answered++
				}
			}
			require.Greater(t, answered, mutations/3, "many are events still")
			require.Greater(t, len(watched.Calls()), mutations/10, "of them, many reach the table")
			require.Greater(t, n, mutations/1000, "and with keys of their own the handler")
			for _, rec := range store.Records() {
				require.Regexp(t, keyGrammar, rec.Value)
			}
		})
	}
}

// check invokes with an event and reports whether it was one for the handler's
// type.
func check(t *testing.T, h lambda.Handler, raw []byte) bool {
	t.Helper()
	defer requireNoPanic(t, raw)
	out, err := h.Invoke(t.Context(), raw)
	if err != nil {
		// aws-lambda-go could not read it, or it has no method; nothing else is an error here.
		require.Regexp(t, "^(json: |parsing time|invalid character|idem: HTTP contract: the event has no method)",
			err.Error())
		return false
	}
	var answer struct{ StatusCode int }
	require.NoError(t, json.Unmarshal(out, &answer))
	require.GreaterOrEqual(t, answer.StatusCode, 200)
	return true
}

// requireNoPanic fails the test over a panic at an event.
func requireNoPanic(t *testing.T, raw []byte) {
	if p := recover(); p != nil {
		t.Fatalf("%v with %s", p, raw)
	}
}

var scraps = []any{
	nil, "", " ", ",", `"`, "\x00", "é", "%", "%zz", "a,b", `"quoted-key-of-16-chars"`, `"a";p=1`, "*", "/",
	"//", "$default", "ANY /x", "POST",
	"{proxy+}", "/{proxy+}", true, false, float64(0), -1.5, 1e300, []any{}, []any{"a", "b"}, map[string]any{},
	map[string]any{"a": "b"},
	strings.Repeat("k", 300), "application/json", "multipart/form-data", "{", `{"a":1,"a":2}`,
}

// mutated changes one place of a JSON value: it copies what it changes.
func mutated(random *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		v = maps.Clone(v)
		name := slices.Sorted(maps.Keys(v))[random.IntN(len(v))]
		switch random.IntN(8) {
		case 0:
			delete(v, name)
		case 1:
			v[strings.ToUpper(name)] = v[name]
		case 2:
			v[fmt.Sprint(name, random.IntN(3))] = scraps[random.IntN(len(scraps))]
		default:
			v[name] = mutated(random, v[name])
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		v = slices.Clone(v)
		i := random.IntN(len(v))
		if random.IntN(3) == 0 {
			return append(v, v[i])
		}
		v[i] = mutated(random, v[i])
		return v
	case string:
		if random.IntN(2) == 0 {
			return text(random, v)
		}
	}
	return scraps[random.IntN(len(scraps))]
}

// text changes some bytes of a string.
func text(random *rand.Rand, s string) string {
	b := []byte(s)
	for range 1 + random.IntN(3) {
		i := random.IntN(len(b) + 1)
		switch random.IntN(3) {
		case 0:
			b = slices.Insert(b, i, byte(random.IntN(256)))
		case 1:
			b = slices.Delete(b, i, min(i+1+random.IntN(4), len(b)))
		default:
			if i < len(b) {
				b[i] = byte(random.IntN(256))
			}
		}
	}
	return string(b)
}
