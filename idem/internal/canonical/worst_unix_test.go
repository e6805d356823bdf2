//go:build unix

package canonical

import (
	"crypto/sha256"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mostTimes is what a hostile text of 6 MiB, the largest that Lambda takes, may cost
// against a plain one of its size.
const mostTimes = 12

// BenchmarkCanonicalWorst compares, in one run, the digest of a plain text's form with
// those of hostile ones, and fails beyond mostTimes. It counts the process's CPU time:
// what other processes take of the machine is not the text's cost.
func BenchmarkCanonicalWorst(b *testing.B) {
	const size = 6 << 20
	plainOne, texts := plainText(size), hostileTexts(size)
	turn := func(best time.Duration, text []byte) time.Duration {
		runtime.GC()
		start := used(b)
		form, _ := Append(make([]byte, 0, len(text)), text)
		_ = sha256.Sum256(form)
		return min(best, used(b)-start)
	}
	for b.Loop() {
		plain, worst, which := time.Hour, 0.0, ""
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			hostile := time.Hour
			for range 3 {
				plain, hostile = turn(plain, plainOne), turn(hostile, texts[name])
			}
			times := float64(hostile) / float64(plain)
			if testing.Verbose() {
				b.Logf("%-36s %.1f times", name, times)
			}
			if times > worst {
				worst, which = times, name
			}
		}
		b.ReportMetric(worst, "times-plain")
		if worst > mostTimes {
			b.Fatalf("%q costs %.1f times as much as a plain text of its size: at most %d times is promised",
				which, worst, mostTimes)
		}
	}
}

// used is the CPU time of this process, of the system on its behalf included.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
