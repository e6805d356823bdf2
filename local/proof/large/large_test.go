package large

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/idem-go/idempotency/local/proof/rig/register"
)

var seed = flag.Uint64("seed", 1, "of the fates, the faults and who asks when")

// role is the environment variable of the processes, which are copies of the test.
const role = "IDEM_LARGE_WORKER"

func TestMain(m *testing.M) {
	_ = os.Unsetenv(dynamodblocal.EnvEndpoint) // a database that is given cannot be killed
	testmain.Parallel(4)                       // they mostly wait
	testmain.Run(m, testmain.Role{Env: role, Main: work})
}

// audit holds outcomes, effects, entries, balances and messages to each other.
func (w *world) audit() (wrong []string) {
	say := func(n int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s %d: ", modeOf(n).op.Name, n)+fmt.Sprintf(format, args...))
	}
	unique, tokens := map[int][]int{}, map[int]map[string]int{}
	for _, e := range w.recorder.Effects() {
		switch {
		case e.Token == "":
			unique[e.N] = append(unique[e.N], e.Run)
		case tokens[e.N] == nil:
			tokens[e.N] = map[string]int{e.Token: e.Run}
		default:
			tokens[e.N][e.Token] = e.Run
		}
	}
	entries, balances, want := map[int][]int{}, map[string]string{}, map[string]int{}
	for _, it := range w.scan(w.config.Books) {
		pk, sk := rig.Text(it["pk"]), rig.Text(it["sk"])
		if sk == "balance" {
			balances[pk], want[pk] = rig.Text(it["balance"]), want[pk]+opening
			continue
		}
		entries[numberOf(pk)] = append(entries[numberOf(pk)], numberOf(sk))
	}
	for _, n := range w.requests {
		m := modeOf(n)
		rec, err := w.store.Get(w.t.Context(), keyOf(n).ID())
		require.NoError(w.t, err)
		require.NotNil(w.t, rec, "request %d has no record", n)
		w.counts["at the end "+string(rec.State)]++
		value := 0
		switch rec.State {
		case idem.Completed:
			body, err := w.store.Result(w.t.Context(), rec)
			require.NoError(w.t, err)
			value = numberOf(string(body))
		case idem.Failed:
		default:
			say(n, "it is left open: %+v", rec)
		}
		if !rec.Due.IsZero() || rec.ExpiresAt.IsZero() {
			say(n, "it has ended and is in the index: %+v", rec)
		}
		done := rec.State == idem.Completed
		effects := len(tokens[n])
		if m.commits {
			effects = len(entries[n])
		} else if m.parks() {
			effects = len(unique[n])
		}
		if effects > 1 || len(tokens[n]) > 1 || len(unique[n]) > 1 {
			say(n, "it took effect twice: %v, %v, %v", unique[n], tokens[n], entries[n])
		}
		if more := w.again(n); more > 0 {
			say(n, "%d runs after one that may have taken effect: %+v, %v", more, w.recorder.Of(n),
				w.history.Of(strconv.Itoa(n)))
		}
		if done != (effects == 1) {
			say(n, "it is %s with %d effects: %+v", rec.State, effects, rec)
		}
		messages := 0
		switch {
		case m.commits && done:
			messages = 1
			from, to, amount := transfer(n)
			want[from] -= amount
			want[to] += amount
			if !slices.Equal(entries[n], []int{value}) {
				say(n, "its entries are %v, its outcome is of run %d", entries[n], value)
			}
			for id, run := range w.messages[n] {
				if run != value {
					say(n, "message %s is of run %d, its outcome of run %d", id, run, value)
				}
			}
		case m.later:
			messages = 1
		}
		if len(w.messages[n]) != messages {
			say(n, "it has %d messages in place of %d: %v", len(w.messages[n]), messages, w.messages[n])
		}
	}
	for id, n := range want {
		if balances[id] != strconv.Itoa(n) {
			wrong = append(wrong, fmt.Sprintf("%s has %s in place of %d", id, balances[id], n))
		}
	}
	return append(wrong, w.entries()...)
}

// entries holds the audit to what was changed from outside: each change has its entry, and there is no other.
// Without transactions the process may have died before it could confirm one.
func (w *world) entries() (wrong []string) {
	confirmed, all := map[string]int{}, map[string]int{}
	for _, it := range w.scan(w.config.Records) {
		if strings.HasPrefix(rig.Text(it[schema.SK]), schema.AuditSK) {
			id := rig.Text(it[schema.PK])
			all[id]++
			if it[schema.AuditUnconfirmed] == nil {
				confirmed[id]++
			}
		}
	}
	for _, n := range w.requests {
		id := keyOf(n).ID()
		w.counts["changes from outside"] += w.changes[id]
		if w.changes[id] > all[id] || confirmed[id] > w.changes[id]+w.unsure[id] ||
			all[id] > confirmed[id] && !w.config.WithoutTransactions {
			wrong = append(wrong, fmt.Sprintf("%s %d was changed %d times from outside and has %d entries, %d confirmed",
				modeOf(n).op.Name, n, w.changes[id], all[id], confirmed[id]))
		}
	}
	return wrong
}

// forget has two operators remove one in some records, each at the same time.
func (w *world) forget() (wrong []string) {
	for i := 0; i < len(w.requests); i += 10 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { w.ask("forget", w.requests[i]) })
		}
		both.Wait()
	}
	left := map[string][]string{}
	for _, it := range w.scan(w.config.Records) {
		left[rig.Text(it[schema.PK])] = append(left[rig.Text(it[schema.PK])], rig.Text(it[schema.SK]))
	}
	for i := 0; i < len(w.requests); i += 10 {
		n := w.requests[i]
		entries := left[keyOf(n).ID()]
		if slices.Contains(entries, schema.RecordSK) || !slices.ContainsFunc(entries, func(sk string) bool {
			return strings.HasPrefix(sk, schema.AuditSK)
		}) {
			wrong = append(wrong, fmt.Sprintf("%s %d was removed: %q", modeOf(n).op.Name, n, entries))
		}
	}
	return wrong
}

// again counts the runs of a request that must not run again: neither has the run before said that it has had no
// effect, nor has the provider.
func (w *world) again(n int) int {
	if modeOf(n).op.Repeat != idem.NotRepeatable {
		return 0
	}
	runs := w.recorder.Of(n)
	may := 1
	for _, r := range runs {
		if r.End == "not executed" {
			may++
		}
	}
	for _, o := range w.history.Of(strconv.Itoa(n)) {
		if (o.What == register.Probed || o.What == register.Resolved) && o.Value == register.Empty {
			may++
		}
	}
	return len(runs) - may
}

// play is a run. It returns what is wrong.
func (w *world) play() []string {
	w.load()
	wrong := append(w.settle(), w.audit()...)
	for _, b := range w.broken() {
		wrong = append(wrong, fmt.Sprintf("%s: no order of its operations is right: %s\n%v", b.Key, b.Picture(w.t),
			b.Operations))
	}
	wrong = append(wrong, w.forget()...)
	w.t.Logf("seed %d: %d requests: operations %v; %v; faults %v", *seed, len(w.requests), w.history.Counts(), w.counts,
		w.faults.Count())
	return wrong
}

// broken are the requests whose histories no register could have.
func (w *world) broken() []register.Broken {
	return w.history.Broken(w.t, func(key string) bool { return modeOf(numberOf(key)).parks() })
}

// hasty is with leases that are over soon, and no patience with a database that does not answer.
var hasty = config{Lease: 6 * time.Second, Patience: 3 * time.Second}

func TestThePromiseAtLarge(t *testing.T) {
	t.Parallel()
	all := 42
	if rig.Long() {
		all = 1600
	}
	for name, part := range map[string]int{"with transactions": 1, "without transactions": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hasty
			c.WithoutTransactions = part > 1
			w := newWorld(t, all/part, c, rig.AnyFate(int(*seed)))
			w.trouble()
			require.Empty(t, w.play())
			counts := w.history.Counts()
			require.NotZero(t, counts[register.Ran])
			require.NotZero(t, w.counts["at the end "+string(idem.Completed)], w.counts)
			faults := 0
			for _, n := range w.faults.Count() {
				faults += n
			}
			require.NotZero(t, faults)
			for _, what := range []string{"processes killed", "database killed", "sweep", "changes from outside"} {
				require.NotZero(t, w.counts[what], what)
			}
			if !rig.Long() {
				return // a short run has not each of what follows
			}
			for _, what := range []string{"processes frozen", "database frozen", "jumps of the clock"} {
				require.NotZero(t, w.counts[what], what)
			}
			for _, what := range []string{"no try answered, one arrives soon", "no try answered, one arrives when all is over"} {
				require.True(t, w.counts[what] > 0 || c.WithoutTransactions, what)
			}
			for _, what := range []register.What{register.Replayed, register.Parked, register.Denied, register.Lost,
				register.Probed, register.Resolved} {
				require.NotZero(t, counts[what], what)
			}
			for _, fault := range rig.AllFaults {
				require.True(t, w.faults.Count()[fault] > 0 || c.WithoutTransactions, fault)
			}
		})
	}
}

// Conflicts alone are waited out: they cost no claim, and each request is done by its first attempt.
func TestConflictsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 35, config{Lease: 10 * time.Minute, Patience: time.Minute}, func(int, int) string { return "ok" })
	w.calm = true
	w.faults = faultnet.NewRandom(*seed, nil, func(op string) (float64, []string) {
		if slices.Contains([]string{"TransactWriteItems", "PutItem", "UpdateItem"}, op) {
			return 30, []string{faultnet.Conflicted}
		}
		return 0, nil
	})
	w.attempts.Set(w.faults.Rule)
	w.outside.Set(func(c *faultnet.Call) faultnet.Fault { w.watch(c); return nil })
	require.Empty(t, w.play())
	for _, n := range w.requests {
		if op := modeOf(n).op; op.Mode != idem.Atomic { // in which duplicates run at the same time
			require.Len(t, w.recorder.Of(n), 1, "%s %d", op.Name, n)
		}
	}
	require.NotZero(t, w.faults.Count()[faultnet.Conflicted])
	for _, n := range w.requests {
		for _, o := range w.history.Of(strconv.Itoa(n)) {
			require.NotContains(t, []register.What{register.Denied, register.Lost, register.Parked}, o.What, o)
		}
	}
}

func TestABrokenHistoryIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 14, config{Lease: 10 * time.Minute, Patience: time.Minute, Plant: "forgetful"},
		func(int, int) string { return "ok" })
	w.calm, w.faults = true, faultnet.NewRandom(*seed, nil, func(string) (float64, []string) { return 0, nil })
	w.load()
	w.settle()
	broken := w.broken()
	require.NotEmpty(t, broken)
	require.NoError(t, os.Remove(broken[0].Picture(t)))
}
