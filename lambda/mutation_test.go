package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
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

// mutants calls try with events that no service sends. They begin as the samples, and none of them panics.
// The seed is fixed, so that every run is the same.
func mutants(t *testing.T, n int, names []string, try func(random *rand.Rand, raw []byte)) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var seeds []any
	for _, name := range names {
		seeds = append(seeds, decoded[any](t, name))
	}
	var raw []byte
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%v with %s", p, raw)
		}
	}()
	for range n {
		event := seeds[random.IntN(len(seeds))]
		for range 1 + random.IntN(4) {
			event = mutated(random, event)
		}
		var err error
		raw, err = json.Marshal(event)
		require.NoError(t, err)
		try(random, raw)
	}
}

// Requests: always an answer, and whatever reaches the table matches the key's grammar.
func TestMutatedEvents(t *testing.T) {
	for kind := range functions {
		t.Run(kind, func(t *testing.T) {
			store, n, answered := memory(), 0, 0
			watched := idemtest.NewFaults(store)
			h := lambda.NewHandler(functions[kind](newEngine(t, watched), idemhttp.AnyRoute(charge),
				idemhttp.SingleTenant, nil, &n))
			names := slices.DeleteFunc(samples.Names(), func(name string) bool { return !strings.HasPrefix(name, kind+"-") })
			mutants(t, mutations, names, func(_ *rand.Rand, raw []byte) {
				out, err := h.Invoke(t.Context(), raw)
				if err != nil {
					// aws-lambda-go could not read it, or it has no method; nothing else is an error here.
					require.Regexp(t, "^(json: |parsing time|invalid character|idem: HTTP contract: the event has no method)",
						err.Error())
					return
				}
				var answer struct{ StatusCode int }
				require.NoError(t, json.Unmarshal(out, &answer))
				require.GreaterOrEqual(t, answer.StatusCode, 200)
				answered++
			})
			require.Greater(t, answered, mutations/3, "many are events still")
			require.Greater(t, len(watched.Calls()), mutations/10, "of them, many reach the table")
			require.Greater(t, n, mutations/1000, "and with keys of their own the handler")
			for _, rec := range store.Records() {
				require.Regexp(t, keyGrammar, rec.Value)
			}
		})
	}
}

// Messages: an answer to each batch, and every message that is not acknowledged is named.
func TestSQSMutatedEvents(t *testing.T) {
	keys := []SQSKeyFunc{
		SQSAttribute(idem.SingleTenant, SQSKeyAttribute), SQSAttribute("priority", "trace"),
		SQSPointer(idem.SingleTenant, "/paymentId"),
		SQSPointer("/currency", "/amount"), SQSDeduplicationID(idem.SingleTenant), SQSMessageID(idem.SingleTenant),
	}
	for _, sample := range []string{"sqs-standard", "sqs-fifo"} {
		t.Run(sample, func(t *testing.T) {
			reasons := map[Reason]int{}
			mutants(t, mutations/2, []string{sample}, func(random *rand.Rand, raw []byte) {
				var event events.SQSEvent
				if json.Unmarshal(raw, &event) != nil {
					return
				}
				var seen reports
				h := SQS(newEngine(t, memory()), fulfil, keys[random.IntN(len(keys))], &SQSOptions{OnOutcome: seen.hook},
					func(context.Context, payment) error { return nil })
				res, err := h(t.Context(), event)
				require.NoError(t, err)
				require.Len(t, seen.all, len(event.Records))
				back := map[string]bool{}
				for _, out := range seen.all {
					reasons[out.Reason]++
					if !out.Reason.Acknowledges() {
						back[out.Event.MessageId] = true
					}
				}
				require.ElementsMatch(t, slices.Collect(maps.Keys(back)), named(res))
				answer, err := json.Marshal(res)
				require.NoError(t, err)
				require.Contains(t, string(answer), `"batchItemFailures":[`)
			})
			for _, r := range []Reason{ReasonExecuted, ReasonReplayed, ReasonKeyInvalid, ReasonBodyUnreadable} {
				require.Greater(t, reasons[r], mutations/200, r)
			}
			if sample == "sqs-fifo" {
				require.Greater(t, reasons[ReasonBlocked], mutations/200)
			}
		})
	}
}

// The other sources: this shows that nothing panics, and nothing else. What they answer is not looked at.
func TestMutatedSourceEvents(t *testing.T) {
	for name, source := range sources {
		mutants(t, 1000, []string{name}, func(_ *rand.Rand, raw []byte) {
			_, _ = source.open(newEngine(t, memory()), fulfil, &deed{})(invocation(t), raw)
		})
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
