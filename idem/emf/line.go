package emf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	// maxValues is how many values of a metric a line may have.
	maxValues = 100
	// topTenants are in a line.
	topTenants = 5
)

// units in the words of CloudWatch.
var units = map[metric.Kind]string{metric.Count: "Count", metric.Level: "Count", metric.Age: "Seconds",
	metric.Time: "Milliseconds", metric.Units: "Count", metric.Share: "Percent"}

// Flush writes what was counted since the last time, a line for each operation, and one
// more for each 100 values that one metric has beyond the first. If the context is that
// of a Lambda invocation, the lines have its request id. What could not be written is lost.
func (m *Metrics) Flush(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(ctx)
}

// write writes the lines. The caller has the lock.
func (m *Metrics) write(ctx context.Context) error {
	request := ""
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		request = lc.AwsRequestID
	}
	var failed error
	for _, s := range m.series {
		for s.some {
			m.line = m.append(m.line[:0], s, request)
			if _, err := m.out.Write(m.line); err != nil {
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// append appends a line with the series' numbers and its first values, and takes these
// out of it.
func (m *Metrics) append(b []byte, s *series, request string) []byte {
	now := time.Now()
	b = append(b, `{"_aws":{"Timestamp":`...)
	b = strconv.AppendInt(b, now.UnixMilli(), 10)
	b = append(b, `,"CloudWatchMetrics":[{"Namespace":"`+schema.MetricNamespace+`","Dimensions":[["`+
		schema.DimensionService+`"]`...)
	if s.operation != "" {
		b = append(b, `,["`+schema.DimensionService+`","`+schema.DimensionOperation+`"]`...)
	}
	b = append(b, `],"Metrics":[`...)
	for i, what := range metric.All {
		if s.has(i) {
			b = append(b, `{"Name":"`...)
			b = append(b, what.Name...)
			b = append(b, `","Unit":"`...)
			b = append(b, units[what.Kind]...)
			b = append(b, `"},`...)
		}
	}
	b = append(b[:len(b)-1], `]}]},"`+schema.DimensionService+`":`...)
	b = append(b, m.service...)
	if s.operation != "" {
		b = append(b, `,"`+schema.DimensionOperation+`":`...)
		b = append(b, s.name...)
	}
	for i, what := range metric.All {
		if s.has(i) {
			b = append(b, `,"`...)
			b = append(b, what.Name...)
			b = append(b, `":`...)
			b = s.take(b, i)
		}
	}
	if m.level != nil {
		b = append(b, `,"level":`...)
		b = append(b, m.level...)
		b = append(b, `,"timestamp":"`...)
		b = now.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	if request != "" {
		b = append(b, `,"`+schema.PropertyRequest+`":`...)
		b = appendQuoted(b, request)
	}
	if len(s.tenants) > 0 {
		b = append(b, `,"`+schema.PropertyDuplicates+`":{`...)
		b = s.takeTenants(b)
		b = append(b, '}')
	}
	s.some = slices.ContainsFunc(s.values, func(t []float64) bool { return len(t) > 0 })
	return append(b, '}', '\n')
}

func (s *series) has(i int) bool { return s.numbers[i].set || len(s.values[i]) > 0 }

// take appends the value or the values of a metric, and takes them out of the series.
func (s *series) take(b []byte, i int) []byte {
	if s.numbers[i].set {
		b = strconv.AppendFloat(b, s.numbers[i].n, 'f', -1, 64)
		s.numbers[i] = number{}
		return b
	}
	now := s.values[i][:min(len(s.values[i]), maxValues)]
	if len(now) == 1 {
		b = strconv.AppendFloat(b, now[0], 'f', -1, 64)
	} else {
		b = append(b, '[')
		for _, v := range now {
			b = append(strconv.AppendFloat(b, v, 'f', -1, 64), ',')
		}
		b[len(b)-1] = ']'
	}
	s.values[i] = slices.Delete(s.values[i], 0, len(now))
	return b
}

// takeTenants appends the tenants with the most duplicates as an object's members.
func (s *series) takeTenants(b []byte) []byte {
	type tenant struct {
		name string
		n    int
	}
	all := make([]tenant, 0, len(s.tenants))
	for name, n := range s.tenants {
		all = append(all, tenant{name, n})
	}
	clear(s.tenants)
	slices.SortFunc(all, func(a, b tenant) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	for _, t := range all[:min(len(all), topTenants)] {
		b = append(appendQuoted(b, t.name), ':')
		b = append(strconv.AppendInt(b, int64(t.n), 10), ',')
	}
	return b[:len(b)-1]
}

// maxDimension is the length of a dimension's value.
const maxDimension = 1024

// dimension is the text with what CloudWatch takes in no dimension's value percent-encoded:
// all but printable ASCII, and spaces if there is nothing else.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
func dimension(text string) string {
	blank := strings.Trim(text, " ") == ""
	taken := func(c byte) bool { return c > ' ' && c < 0x7f || c == ' ' && !blank }
	var b strings.Builder
	for _, c := range []byte(text) {
		if taken(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// appendQuoted appends the text as JSON. What is not UTF-8 in it is replaced.
func appendQuoted(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}
