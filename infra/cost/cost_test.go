package main

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func defaults(t *testing.T, args ...string) *settings {
	t.Helper()
	s := &settings{}
	set := flag.NewFlagSet("cost", flag.ContinueOnError)
	s.flags(set)
	require.NoError(t, set.Parse(args))
	return s
}

func TestReadmeHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, table := range []string{table(defaults(t)), keyTable(defaults(t)), watchTable(defaults(t))} {
		require.Contains(t, string(page), table, "run go run ./infra/cost and put its tables into the page")
	}
}

// By hand, for the first row: 95 first executions and 5 replays of a hundred.
func TestMonthly(t *testing.T) {
	w := way{first: units{Write: 3}, replay: units{Write: 2}, record: 900}
	s := &settings{write: 0.5, read: 1, storage: 0.2, recovery: 0.3, replays: 0.05, retention: 73 * time.Hour}
	// 950,000 × 3 + 50,000 × 2 = 2.95 M units; a tenth of 950,000 items of 1,000 bytes.
	require.InDelta(t, 2.95*0.5+0.095*0.5, w.monthly(s, 1e6), 1e-9)
	w.first.Read = 1
	require.InDelta(t, 2.95*0.5+0.95+0.095*0.5, w.monthly(s, 1e6), 1e-9)
}

func TestPricesCount(t *testing.T) {
	for _, w := range ways() {
		was := w.monthly(defaults(t), 1e6)
		require.Positive(t, was)
		for _, arg := range []string{"-write=2", "-storage=2", "-recovery=2", "-retention=48h"} {
			require.Greater(t, w.monthly(defaults(t, arg), 1e6), was, "%s %s", w.name, arg)
		}
		require.Less(t, w.monthly(defaults(t, "-replays=0.5"), 1e6), was, w.name)
	}
}

// By hand: 2 alarms, 3 and 5 metrics, and a dashboard.
func TestWatchTable(t *testing.T) {
	was := watchingText
	t.Cleanup(func() { watchingText = was })
	watchingText = []byte(`{"mine":{"Alarms":2,"Dashboards":1,"Sweeps":3,"Calls":5}}`)
	require.Contains(t, watchTable(defaults(t, "-alarm=0.5", "-metric=2", "-dashboard=7")),
		"| mine | 2 | 3 | 5 | 1 | $24.00 |\n")
}

func TestMeasuredUnits(t *testing.T) {
	all := ways()
	require.Equal(t, 2, all[0].first.calls())
	require.Equal(t, 1, all[0].replay.calls())
	require.Equal(t, all[0].first.Calls, all[1].first.Calls, "Powertools makes the same calls")
	require.Equal(t, all[0].first.Calls, all[2].first.Calls, "watching takes no call")
	require.Equal(t, all[0].first.Write+2, all[2].first.Write, "an index entry that is written and removed")
}

func TestSettingsRefuse(t *testing.T) {
	for _, arg := range []string{"-write=-1", "-alarm=-1", "-metric=NaN", "-dashboard=-3", "-read=NaN",
		"-storage=+Inf", "-replays=1.5",
		"-replays=NaN", "-retention=0s"} {
		require.Error(t, defaults(t, arg).check(), arg)
	}
	require.NoError(t, defaults(t).check())
}

func TestDollars(t *testing.T) {
	for v, text := range map[float64]string{0: "0.00", 1.005: "1.00", 999: "999.00", 1000: "1,000",
		1234567.8: "1,234,568"} {
		require.Equal(t, text, dollars(v))
	}
}
