// Command cost prints what the table of records costs a month, compared with Powertools for
// AWS Lambda, and what watching the example's stacks costs. It uses the measured calls and capacity units of
// the paths of a call, and the alarms and metrics of the stacks (measured.json and watching.json, which the
// tests write and compare).
//
//	go run ./infra/cost [-replays 0.2] [-retention 168h] [-write 0.7125] …
//
// The defaults are the prices of us-east-1, for on-demand tables since 1 November 2024.
// Check that they are current: https://aws.amazon.com/dynamodb/pricing/on-demand/ and
// https://aws.amazon.com/cloudwatch/pricing/.
// The cost does not include a free tier, functions, APIs and queues.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

//go:embed measured.json
var measuredText []byte

//go:embed watching.json
var watchingText []byte

// watching is what CloudWatch has of a stack: Sweeps are the metrics that are always written, Calls those of
// functions while they are called.
type watching struct{ Alarms, Dashboards, Sweeps, Calls int }

// measured are the units of each path, and the size of a record in bytes.
type measured struct {
	Record int
	Paths  map[string]units
}

type units struct {
	Calls       map[string]int
	Write, Read float64
}

func (u units) calls() (sum int) {
	for _, n := range u.Calls {
		sum += n
	}
	return sum
}

// settings that the flags change.
type settings struct {
	// write and read are dollars for a million units, storage and recovery dollars
	// for a GB and month.
	write, read, storage, recovery float64
	// alarm, metric and dashboard are dollars for one and a month.
	alarm, metric, dashboard float64
	replays                  float64
	retention                time.Duration
}

func (s *settings) flags(set *flag.FlagSet) {
	set.Float64Var(&s.write, "write", 0.625, "dollars for a million write request units")
	set.Float64Var(&s.read, "read", 0.125, "dollars for a million read request units")
	set.Float64Var(&s.storage, "storage", 0.25, "dollars for a GB of records a month")
	set.Float64Var(&s.recovery, "recovery", 0.20, "dollars for a GB of point-in-time recovery a month; 0 without")
	set.Float64Var(&s.alarm, "alarm", 0.10, "dollars for an alarm a month")
	set.Float64Var(&s.metric, "metric", 0.30, "dollars for a custom metric a month")
	set.Float64Var(&s.dashboard, "dashboard", 3, "dollars for a dashboard a month")
	set.Float64Var(&s.replays, "replays", 0.05, "share of the operations that are replays, 0 to 1")
	set.DurationVar(&s.retention, "retention", 24*time.Hour, "how long a record is kept")
}

func (s *settings) check() error {
	for name, v := range map[string]float64{"write": s.write, "read": s.read, "storage": s.storage,
		"recovery": s.recovery, "alarm": s.alarm, "metric": s.metric, "dashboard": s.dashboard} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("-%s is %v: use a price in dollars", name, v)
		}
	}
	if !(s.replays >= 0 && s.replays <= 1) {
		return fmt.Errorf("-replays is %v: use a share from 0 to 1", s.replays)
	}
	if s.retention <= 0 {
		return fmt.Errorf("-retention is %v: use a time such as 24h", s.retention)
	}
	return nil
}

// way to run an operation.
type way struct {
	name          string
	first, replay units
	record        int // bytes
}

// Powertools' calls and item: a conditional PutItem and an UpdateItem for a first
// execution, a failed PutItem for a replay, which is billed by the item that is
// there. Its item: id, status, two times, the digest of the payload and the result.
// https://docs.aws.amazon.com/powertools/typescript/latest/features/idempotency/
var (
	theirClaim = len("id") + 62 + len("status") + len("INPROGRESS") + len("expiration") + 6 +
		len("in_progress_expiration") + 8
	theirRecord = theirClaim - len("INPROGRESS") + len("COMPLETED") + len("validation") + 32 + len("data") + result
)

// result is what the measured paths return: 1 KB that does not compress.
const result = 1 << 10

func kilobytes(n int) float64 { return math.Ceil(float64(n) / 1024) }

func pathsOf() (m measured) {
	if err := json.Unmarshal(measuredText, &m); err != nil {
		panic(err) // which is embedded
	}
	return m
}

func ways() []way {
	m := pathsOf()
	ours := func(name, first, replay string) way { return way{name, m.Paths[first], m.Paths[replay], m.Record} }
	theirs := way{"Powertools",
		units{map[string]int{"PutItem": 1, "UpdateItem": 1}, kilobytes(theirClaim) + kilobytes(theirRecord), 0},
		units{map[string]int{"PutItem": 1}, kilobytes(theirRecord), 0}, theirRecord}
	apart := theirs
	apart.name = "Powertools, and a business write apart from it"
	apart.first = units{map[string]int{"PutItem": 2, "UpdateItem": 1}, theirs.first.Write + 1, 0}
	return []way{
		ours("two calls, repeatable", "first execution, repeatable", "replay"),
		theirs,
		ours("two calls, not repeatable", "first execution, not repeatable", "replay"),
		ours("two calls, business write in the transaction", "business write, two calls", "replay"),
		ours("atomic, business write in the transaction", "business write, atomic", "atomic, replay"),
		apart,
	}
}

const (
	month = 730 * time.Hour
	// perItem is what DynamoDB adds to an item's size in storage.
	// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
	perItem = 100
)

// monthly dollars for so many operations.
func (w way) monthly(s *settings, operations float64) float64 {
	first, replays := operations*(1-s.replays), operations*s.replays
	requests := (first*w.first.Write+replays*w.replay.Write)*s.write/1e6 +
		(first*w.first.Read+replays*w.replay.Read)*s.read/1e6
	kept := first * s.retention.Hours() / month.Hours() // once the first ones expire
	return requests + kept*float64(w.record+perItem)/1e9*(s.storage+s.recovery)
}

// table in Markdown.
func table(s *settings) string {
	var b strings.Builder
	b.WriteString("| an operation with 1 KB of result | calls: first, replay | write/read units: first, replay | 1 " +
		"M a month | 100 M | 10 B |\n|---|---|---|---|---|---|\n")
	for _, w := range ways() {
		fmt.Fprintf(&b, "| %s | %d, %d | %g/%g, %g/%g |", w.name, w.first.calls(), w.replay.calls(), w.first.Write,
			w.first.Read, w.replay.Write, w.replay.Read)
		for _, n := range []float64{1e6, 100e6, 10e9} {
			fmt.Fprintf(&b, " $%s |", dollars(w.monthly(s, n)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// keyTable in Markdown: what duplicates of one key cost, and how many of them a second DynamoDB takes. One key is in
// one partition, with 1,000 write units and 3,000 read units a second.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
func keyTable(s *settings) string {
	m := pathsOf()
	var b strings.Builder
	b.WriteString("| a call of one key, with 1 KB of result | write/read units | a million calls " +
		"| calls a second, at most |\n|---|---|---|---|\n")
	for _, row := range [][2]string{
		{"the first duplicate in a process", "replay"}, {"the next ones", "replay of a hot key"},
		{"a duplicate in atomic mode", "atomic, replay"},
	} {
		u := m.Paths[row[1]]
		most := math.Min(1000/u.Write, 3000/u.Read)
		fmt.Fprintf(&b, "| %s | %g/%g | $%.3f | %s |\n", row[0], u.Write, u.Read, u.Write*s.write+u.Read*s.read,
			grouped(most))
	}
	return b.String()
}

// watchTable in Markdown.
func watchTable(s *settings) string {
	var stacks map[string]watching
	if err := json.Unmarshal(watchingText, &stacks); err != nil {
		panic(err) // which is embedded
	}
	var b strings.Builder
	b.WriteString("| stack | alarms | metrics of its sweeps | metrics of its functions, if they are called in each " +
		"hour | dashboard | a month |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(stacks)) {
		w := stacks[name]
		sum := float64(w.Alarms)*s.alarm + float64(w.Sweeps+w.Calls)*s.metric + float64(w.Dashboards)*s.dashboard
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | $%s |\n", name, w.Alarms, w.Sweeps, w.Calls, w.Dashboards, dollars(sum))
	}
	return b.String()
}

// dollars with two decimals, from a thousand on without and with commas.
func dollars(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.2f", v)
	}
	return grouped(v)
}

// grouped is a whole number with commas.
func grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func main() {
	s := &settings{}
	s.flags(flag.CommandLine)
	flag.Parse()
	if err := s.check(); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
	fmt.Print(table(s), "\n", keyTable(s), "\n", watchTable(s))
	fmt.Printf("\nwith %g %% replays, records kept %v; $%g and $%g for a million write and read units, $%g and $%g "+
		"for a GB of storage and of recovery a month; $%g, $%g and $%g for an alarm, a metric and a dashboard a month\n",
		s.replays*100, s.retention, s.write, s.read, s.storage, s.recovery, s.alarm, s.metric, s.dashboard)
}
