package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// effects reads the lines that executions have left.
func effects(t *testing.T, file string) []string {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func TestTwoHundredCallersInFourProcessesRunOnce(t *testing.T) {
	table, file := newTable(t), filepath.Join(t.TempDir(), "effects")
	var mu sync.Mutex
	var got []said
	var wg sync.WaitGroup
	for range 4 {
		w := start(t, table, long)
		wg.Go(func() {
			w.do(job{Key: "one", Callers: 50, Wait: time.Minute, Effects: file})
			for answers := 0; answers < 50; {
				s := w.hear()
				if s.Started {
					continue
				}
				answers++
				mu.Lock()
				got = append(got, s)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	ran := effects(t, file)
	require.Len(t, ran, 1)
	require.Len(t, got, 200)
	live := 0
	for _, s := range got {
		require.Empty(t, s.Err)
		require.Equal(t, ran[0], s.Value)
		if !s.Replayed {
			live++
		}
	}
	require.Equal(t, 1, live)
}

func TestManyKeysRunOnceEach(t *testing.T) {
	keys := 100
	if os.Getenv("IDEM_LONG") == "1" {
		keys = 500
	}
	table, file := newTable(t), filepath.Join(t.TempDir(), "effects")
	var mu sync.Mutex
	got := map[string][]said{}
	var wg sync.WaitGroup
	for range 4 {
		w := start(t, table, long)
		wg.Go(func() {
			for i := range keys {
				w.do(job{Key: fmt.Sprintf("key-%d", i), Callers: 2, Wait: time.Minute, Repeatable: i%2 == 0, Effects: file})
			}
		})
		wg.Go(func() {
			for answers := 0; answers < 2*keys; {
				s := w.hear()
				if s.Started {
					continue
				}
				answers++
				mu.Lock()
				got[s.Key] = append(got[s.Key], s)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, got, keys)
	ran := map[string]string{}
	for _, line := range effects(t, file) {
		key, _, _ := strings.Cut(line, " ")
		require.NotContains(t, ran, key, "ran twice")
		ran[key] = line
	}
	require.Len(t, ran, keys)
	for key, answers := range got {
		require.Len(t, answers, 8)
		for _, s := range answers {
			require.Empty(t, s.Err)
			require.Equal(t, ran[key], s.Value, "a caller of %s got another result", key)
		}
	}
}

// lapsed waits until a claim taken before is over for every observer.
func lapsed() { <-time.After(short + margin + 100*time.Millisecond) }

func TestKilledInTheHandler(t *testing.T) {
	t.Parallel()
	for _, repeatable := range []bool{true, false} {
		t.Run(fmt.Sprintf("repeatable=%v", repeatable), func(t *testing.T) {
			t.Parallel()
			table, file := newTable(t), filepath.Join(t.TempDir(), "effects")
			j := job{Key: "killed", Repeatable: repeatable, Hang: true, Release: file + ".release", Effects: file}
			victim, duplicate := start(t, table, short), start(t, table, short)
			victim.do(j)
			require.True(t, victim.hear().Started)
			victim.signal(syscall.SIGKILL)

			j.Hang = false
			require.Equal(t, "in flight", duplicate.ask(j).Kind, "before the lease is over")
			lapsed()
			after := duplicate.ask(j)
			if repeatable {
				require.Empty(t, after.Err)
				require.Contains(t, after.Value, "attempt 2")
				require.Len(t, effects(t, file), 2)
				return
			}
			require.Equal(t, "unknown", after.Kind)
			require.Equal(t, "unknown", duplicate.ask(j).Kind)
			require.Len(t, effects(t, file), 1, "a not repeatable operation ran again")
		})
	}
}

func TestStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	t.Run("taken over", func(t *testing.T) {
		t.Parallel()
		table, file := newTable(t), filepath.Join(t.TempDir(), "effects")
		j := job{Key: "zombie", Repeatable: true, Hang: true, Release: file + ".release", Effects: file}
		zombie, duplicate := start(t, table, short), start(t, table, short)
		zombie.do(j)
		require.True(t, zombie.hear().Started)
		zombie.signal(syscall.SIGSTOP)
		lapsed()

		j.Hang = false
		winner := duplicate.ask(j)
		require.Empty(t, winner.Err)
		require.Contains(t, winner.Value, "attempt 2")

		require.NoError(t, os.WriteFile(j.Release, nil, 0o600))
		zombie.signal(syscall.SIGCONT)
		late := zombie.hear()
		require.Empty(t, late.Err)
		require.Equal(t, winner.Value, late.Value, "the zombie's caller gets the recorded outcome")
		require.True(t, late.Replayed)
		require.Equal(t, winner.Value, duplicate.ask(j).Value, "the zombie changed nothing")
	})
	t.Run("parked, then its own late outcome stands", func(t *testing.T) {
		t.Parallel()
		table, file := newTable(t), filepath.Join(t.TempDir(), "effects")
		j := job{Key: "slow", Hang: true, Release: file + ".release", Effects: file}
		slow, duplicate := start(t, table, short), start(t, table, short)
		slow.do(j)
		require.True(t, slow.hear().Started)
		slow.signal(syscall.SIGSTOP)
		lapsed()

		j.Hang = false
		require.Equal(t, "unknown", duplicate.ask(j).Kind)
		require.NoError(t, os.WriteFile(j.Release, nil, 0o600))
		slow.signal(syscall.SIGCONT)
		late := slow.hear()
		require.Empty(t, late.Err)
		after := duplicate.ask(j)
		require.Equal(t, late.Value, after.Value)
		require.True(t, after.Replayed)
		require.Len(t, effects(t, file), 1)
	})
}
