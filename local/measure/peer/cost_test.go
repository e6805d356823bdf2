package peer

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

var (
	rounds = flag.Int("rounds", 0, "measure times too, the sides taking turns this many times")
	update = flag.Bool("update", false, "with -rounds: write the table and the chart again")

	//go:embed hand.mjs
	handScript string
)

// cost is a row of the page: what a case takes on a side. All but the last number, the median time in
// milliseconds, is the same on every machine.
type cost struct {
	name, side string
	n          [6]float64
}

// The numbers of a cost.
const (
	calls = iota
	sent
	received
	write
	read
	millis
)

func (c cost) String() string {
	return fmt.Sprintf("| %s | %s | %g | %g | %g | %g | %g | %.1f ms |\n", c.name, c.side, c.n[calls], c.n[sent],
		c.n[received], c.n[write], c.n[read], c.n[millis])
}

var row = regexp.MustCompile(`(?m)^\| (.+) \| (.+)` + strings.Repeat(` \| ([\d.]+)`, 6) + ` ms \|\n`)

// costsOf reads the rows of a page.
func costsOf(page string) (all []cost) {
	for _, cells := range row.FindAllStringSubmatch(page, -1) {
		c := cost{name: cells[1], side: cells[2]}
		for i := range c.n {
			c.n[i], _ = strconv.ParseFloat(cells[3+i], 64) // what is no number is not the measured one
		}
		all = append(all, c)
	}
	return all
}

// meter returns a network's rule that adds up what the calls take.
func (c *cost) meter(t *testing.T) faultnet.Rule {
	var mu sync.Mutex
	return func(call *faultnet.Call) faultnet.Fault {
		mu.Lock()
		defer mu.Unlock()
		c.n[calls]++
		c.n[sent] += float64(len(call.Body))
		call.Body = bytes.Replace(call.Body, []byte("{"), []byte(`{"ReturnConsumedCapacity":"TOTAL",`), 1)
		call.OnPass = func(r *faultnet.Reply) {
			mu.Lock()
			defer mu.Unlock()
			size, units := unitsOf(t, r)
			c.n[received] += float64(size)
			if strings.HasPrefix(call.Operation, "Get") {
				c.n[read] += units
			} else {
				c.n[write] += units
			}
		}
		return nil
	}
}

var consumed = regexp.MustCompile(`"ConsumedCapacity":{[^}]*"CapacityUnits":([\d.]+)[^}]*}`)

// unitsOf are the capacity units that a reply reports, and the size that it has without this report.
func unitsOf(t *testing.T, r *faultnet.Reply) (size int, units float64) {
	if report := consumed.FindSubmatch(r.Body); report != nil {
		units, err := strconv.ParseFloat(string(report[1]), 64)
		if err != nil {
			t.Error(err)
		}
		return len(r.Body) - len(report[0]), units
	}
	// Not reported for a write whose condition fails. It is billed by the size of the existing item (developer guide,
	// "Conditional writes"), which is smaller than its JSON: one unit up to 1 KB.
	if !bytes.Contains(r.Body, []byte("#ConditionalCheckFailedException")) || len(r.Body) > 1<<10 {
		t.Errorf("the units of this are not known: %s", r.Body)
	}
	return len(r.Body), 1
}

// side is one of those that are measured.
type side struct {
	name    string
	world   *world
	network *faultnet.Network
	warm    *instance // has made calls before
	first   int       // call of the newest key
	number  int       // of the newest call
}

func sides(t *testing.T) []*side {
	var all []*side
	add := func(name string, start func(*world, *faultnet.Network) *instance) {
		s := &side{name: name, world: newWorld(t, start), number: 100_000}
		s.warm, s.network = s.world.process()
		all = append(all, s)
	}
	add("Powertools", startScript(t, powertoolsScript, 30_000))
	add("by hand", startScript(t, handScript, 30_000))
	add("idem", startOurs(t, 30_000))
	return all
}

// call is the next one, with a new key.
func (s *side) call() call {
	s.number++
	s.first = s.number
	return call{Number: s.number, Key: fmt.Sprintf("payment-%d", s.number), Size: 200}
}

// do makes a call that runs handlers so often, and returns the time that it takes.
func (s *side) do(in *instance, c call, runs int) time.Duration {
	before := s.world.runs()
	a := s.world.do(in, c)
	require.Equal(s.world.t, answer{Number: c.Number, Of: s.first, Took: a.Took}, a, s.name)
	require.Equal(s.world.t, runs, s.world.runs()-before, "runs of the handler, %s", s.name)
	return a.Took
}

// cases are measured; a round has each several times.
var cases = []struct {
	name  string
	times int
	play  func(*side) time.Duration
}{
	{"first execution", 10, func(s *side) time.Duration { return s.do(s.warm, s.call(), 1) }},
	{"replay", 10, func(s *side) time.Duration {
		first := s.first
		c := s.call()
		c.Key, s.first = fmt.Sprintf("payment-%d", first), first
		return s.do(s.warm, c, 0)
	}},
	{"batch of 10 SQS messages", 2, func(s *side) time.Duration {
		c := s.call()
		for i := range 10 {
			c.Messages = append(c.Messages, events.SQSMessage{MessageId: fmt.Sprintf("message-%d-%d", c.Number, i),
				Body: `{"order":1}`, EventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:orders"})
		}
		return s.do(s.warm, c, 10)
	}},
	{"start-up to the first answer", 1, func(s *side) time.Duration {
		begun := time.Now()
		in := s.world.start(s.world, s.network)
		s.do(in, s.call(), 1)
		took := time.Since(begun)
		in.kill()
		return took
	}},
}

// The page says what each side takes. Times are not compared. This writes its table and chart again:
//
//	go test -count=1 -run TestCosts ./local/measure/peer -args -rounds=21 -update
func TestCosts(t *testing.T) {
	all := sides(t)
	var costs []cost
	for _, k := range cases {
		for _, s := range all {
			c := cost{name: k.name, side: s.name}
			s.network.Set(c.meter(t))
			k.play(s)
			s.network.Calm()
			costs = append(costs, c)
		}
	}
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	page := string(text)
	if *rounds > 0 {
		rows := measure(all, costs)
		fmt.Print("| case | side | calls | bytes sent | received | write units | read units | median |\n", rows)
		if *update {
			at := row.FindAllStringIndex(page, -1)
			page = page[:at[0][0]] + rows + page[at[len(at)-1][1]:]
			require.NoError(t, os.WriteFile("../README.md", []byte(page), 0o644))
			require.NoError(t, os.WriteFile("../peer.svg", []byte(chart(t, costsOf(page))), 0o644))
		}
	}
	written := costsOf(page)
	require.Len(t, written, len(costs), "rows of the page")
	for i, c := range costs {
		w := written[i]
		require.InEpsilon(t, w.n[sent], c.n[sent], 0.01, "%v: a time has a digit or two less", c)
		require.InEpsilon(t, w.n[received], c.n[received], 0.01, "%v", c)
		c.n[sent], c.n[received], c.n[millis] = w.n[sent], w.n[received], w.n[millis]
		require.Equal(t, w, c)
	}
	drawn, err := os.ReadFile("../peer.svg")
	require.NoError(t, err)
	require.Equal(t, chart(t, written), string(drawn), "the chart shows other numbers than the page")
}

// measure fills in the median times, and returns the rows of the page.
func measure(all []*side, costs []cost) (rows string) {
	took := make([][]float64, len(costs))
	for round := range *rounds {
		for i := range all {
			of := (round + i) % len(all)
			for k, c := range cases {
				for range c.times {
					at := k*len(all) + of
					took[at] = append(took[at], c.play(all[of]).Seconds()*1e3)
				}
			}
		}
	}
	for i := range costs {
		costs[i].n[millis] = slices.Sorted(slices.Values(took[i]))[len(took[i])/2]
		rows += costs[i].String()
	}
	return rows
}
