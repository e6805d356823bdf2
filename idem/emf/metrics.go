package emf

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

// maxTenants bounds the tenants whose duplicates are counted between two lines of an
// operation; further ones are not.
const maxTenants = 1000

// Options of metrics. The zero value, and nil, mean the defaults.
type Options struct {
	// Service is the dimension service. Empty means the function's name, from
	// AWS_LAMBDA_FUNCTION_NAME. The alarms of package infra use that. It has at most 1,024
	// characters, of printable ASCII and not spaces alone.
	Service string
	// Out gets the lines. Nil means os.Stdout.
	Out io.Writer
	// HideTenants leaves the tenants with the most duplicates out.
	HideTenants bool
}

// Metrics counts the notices that it gets, and writes it to the log. It is safe for concurrent use:
// make one per process.
type Metrics struct {
	out     io.Writer
	tenants bool
	service []byte // the member of a line, as JSON
	level   []byte // what makes Lambda's log level let the line through

	mu     sync.Mutex
	series []*series
	line   []byte
	ending int // invocations that are about to be killed
}

// New returns metrics. If there is no name for the service, or one that CloudWatch does not
// take, the error is an [*idem.ConfigError].
func New(o *Options) (*Metrics, error) {
	o = cmp.Or(o, &Options{})
	m := &Metrics{out: cmp.Or[io.Writer](o.Out, os.Stdout), tenants: !o.HideTenants}
	service := cmp.Or(o.Service, os.Getenv("AWS_LAMBDA_FUNCTION_NAME"))
	if service == "" {
		return nil, &idem.ConfigError{What: "emf",
			Problem: "the service has no name: set AWS_LAMBDA_FUNCTION_NAME, as Lambda does, or Options.Service"}
	}
	if dimension(service) != service || len(service) > maxDimension {
		return nil, &idem.ConfigError{What: "emf", Problem: fmt.Sprintf(
			"Options.Service is %q: use up to %d characters of printable ASCII, and not spaces alone", service, maxDimension)}
	}
	m.service = appendQuoted(nil, service)
	// With its JSON log format Lambda drops lines below this level, and takes one without a
	// level for INFO.
	// https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html
	if level := os.Getenv("AWS_LAMBDA_LOG_LEVEL"); level != "" {
		m.level = appendQuoted(nil, level)
	}
	return m, nil
}

// series is what was counted of one operation since the last line.
type series struct {
	operation string
	name      []byte // the operation, as JSON
	some      bool
	numbers   []number    // by place in metric.All
	values    [][]float64 // times in milliseconds and shares in percent, the same
	tenants   map[string]int
}

type number struct {
	n   float64
	set bool
}

// add adds to a sum. Nothing is added up to nothing, which has no value.
func (s *series) add(i int, n float64) {
	if n != 0 {
		s.numbers[i].n += n
		s.numbers[i].set, s.some = true, true
	}
}

// value adds one to those of a time or a share.
func (s *series) value(i int, v float64) {
	s.values[i] = append(s.values[i], v)
	s.some = true
}

// of returns the operation's series.
func (m *Metrics) of(operation string) *series {
	for _, s := range m.series {
		if s.operation == operation {
			return s
		}
	}
	s := &series{
		operation: operation, name: appendQuoted(nil, dimension(operation)),
		numbers: make([]number, len(metric.All)), values: make([][]float64, len(metric.All)), tenants: map[string]int{},
	}
	m.series = append(m.series, s)
	return s
}

// Observe counts a notice. It is an [idem.Observer], for engines and sweepers. Kinds that
// package schema has no metric for are ignored.
func (m *Metrics) Observe(ctx context.Context, n notice.Notice) {
	count, counted := metric.Number(string(n.Kind))
	time, timed := metric.Number(metric.TimeOf(&n))
	percent, called := metric.Duplicate(&n)
	if !counted && !timed && !called {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.writeIfEnding(ctx)
	s := m.of(n.Operation)
	if counted {
		s.add(count, 1)
	}
	if timed {
		s.value(time, float64(n.Took.Microseconds())/1000)
	}
	if called {
		s.value(duplicate, percent)
	}
	if m.tenants && n.Tenant != "" && percent > 0 {
		if _, there := s.tenants[n.Tenant]; there || len(s.tenants) < maxTenants {
			s.tenants[n.Tenant]++
		}
	}
}

// Add adds counts by their names in package schema, such as those of a report, to the
// operation, or to the service if the operation is empty. A level or an age replaces the
// one before. Names that package schema does not have are ignored.
func (m *Metrics) Add(operation string, counts iter.Seq2[string, int]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.writeIfEnding(context.Background())
	s := m.of(operation)
	for name, n := range counts {
		i, ok := metric.Number(name)
		if !ok {
			continue
		}
		switch metric.All[i].Kind {
		case metric.Count, metric.Units:
			s.add(i, float64(n))
		case metric.Level, metric.Age:
			s.numbers[i] = number{float64(n), true}
			s.some = true
		}
	}
}

// Units adds write and read units of DynamoDB to the operation, or to the service if the
// operation is empty. It is for dynamostore.MeterCapacity.
func (m *Metrics) Units(ctx context.Context, operation string, write, read float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.writeIfEnding(ctx)
	s := m.of(operation)
	s.add(writeUnits, write)
	s.add(readUnits, read)
}

// Places in metric.All.
var (
	writeUnits, _ = metric.Number(schema.MetricWriteUnits)
	readUnits, _  = metric.Number(schema.MetricReadUnits)
	duplicate, _  = metric.Number(schema.MetricDuplicate)
)

// Handler is a handler of aws-lambda-go (its lambda.Handler).
type Handler interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// Wrap returns a handler that invokes h and then writes the metrics, also after a panic. An
// invocation that lasts until shortly before its deadline, at which Lambda kills the process,
// writes them then, and from then on at once. A line that cannot be written is logged.
func (m *Metrics) Wrap(h Handler) Handler { return wrapped{m, h} }

type wrapped struct {
	m *Metrics
	h Handler
}

func (w wrapped) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	defer w.m.writeBeforeKill(ctx)()
	defer func() { logged(ctx, w.m.Flush(ctx)) }()
	return w.h.Invoke(ctx, payload)
}

// beforeKill is how long before the deadline metrics are written, at most an eighth of the
// time: then an engine parks what its handler has not finished.
const beforeKill = 500 * time.Millisecond

// writeBeforeKill has metrics written shortly before the context's deadline, and at once from
// then on until the returned function is called.
func (m *Metrics) writeBeforeKill(ctx context.Context) (stop func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	ending := func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ending += n
		m.writeIfEnding(ctx)
	}
	timer := time.AfterFunc(left-min(beforeKill, left/8), func() { ending(1) })
	return func() {
		if !timer.Stop() {
			ending(-1) // it may come first
		}
	}
}

// writeIfEnding writes what was counted if an invocation is about to be killed. The caller has
// the lock.
func (m *Metrics) writeIfEnding(ctx context.Context) {
	if m.ending > 0 {
		logged(ctx, m.write(ctx))
	}
}

func logged(ctx context.Context, err error) {
	if err != nil {
		slog.WarnContext(ctx, "idem: metrics could not be written, they are lost", "error", err)
	}
}
