package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
)

type recordOptions struct {
	state, cacheDir string
	limit           int
	ids             bool
}

func recordsCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var o recordOptions
	fs.StringVar(&o.state, "state", "", "of this state only, such as unknown")
	fs.IntVar(&o.limit, "limit", 50, "how many, the latest first; 0 for all")
	fs.BoolVar(&o.ids, "ids", false, "with the records' ids, as resolving needs them")
	declareCache(fs, &o.cacheDir)
	return func(ctx context.Context, out io.Writer) error {
		if err := o.check(); err != nil {
			return err
		}
		n, err := running(ctx, o.cacheDir)
		if err != nil {
			return err
		}
		return o.show(ctx, out, n)
	}
}

// check refuses what would look like an empty table.
func (o recordOptions) check() error {
	states := []idem.State{idem.Pending, idem.InProgress, idem.Completed, idem.Failed, idem.Retryable, idem.Unknown}
	switch {
	case o.state != "" && !slices.Contains(states, idem.State(o.state)):
		return misuse("-state is %q; there are: %s", o.state, strings.Trim(fmt.Sprint(states), "[]"))
	case o.limit < 0:
		return misuse("-limit is %d: use 0 for all", o.limit)
	}
	return nil
}

func (o recordOptions) show(ctx context.Context, out io.Writer, n note) error {
	client, err := newDynamoDB(n.DynamoDB)
	if err != nil {
		return err
	}
	store, err := dynamostore.New(client, n.Tables[0], nil)
	if err != nil {
		return err
	}
	listed, err := listItems(ctx, client, n.Tables[0])
	if err != nil {
		return fmt.Errorf("cannot read the table %s: %w", n.Tables[0], err)
	}
	var rows []row
	for _, id := range listed.records {
		rec, err := store.Get(ctx, id)
		if rec == nil && err == nil {
			continue // deleted meanwhile
		}
		r := row{id: id, rec: rec, err: err}
		if o.state == "" || rec != nil && string(rec.State) == o.state {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.updated(), a.updated()) })
	shown := rows
	if o.limit > 0 {
		shown = rows[:min(o.limit, len(rows))]
	}
	o.print(out, shown, time.Now())
	fmt.Fprintf(out, "%d of %d records; beside them %s\n", len(shown), len(listed.records), listed.others())
	return nil
}

// row is a record, or why it cannot be read.
type row struct {
	id  string
	rec *idem.Record
	err error
}

func (r row) updated() int64 {
	if r.rec == nil {
		return 0
	}
	return r.rec.UpdatedAt.UnixMilli()
}

func (o recordOptions) print(out io.Writer, rows []row, now time.Time) {
	t := newTable(out)
	head := table.Row{"tenant", "operation", "state", "attempt", "updated", "lease or expiry", "result", "steps", "error", "stuck"}
	if o.ids {
		head = append(head, "id")
	}
	t.AppendHeader(head)
	for _, r := range rows {
		tenant, operation := nameOf(r.id)
		cells := table.Row{tenant, operation, "UNREADABLE", "", "", "", "", "", shorten(fmt.Sprint(r.err), 60), ""}
		if r.rec != nil {
			cells = table.Row{
				tenant, operation, r.rec.State, r.rec.Attempt, ago(r.rec.UpdatedAt, now), until(r.rec, now),
				resultOf(r.rec), stepsOf(r.rec), failureOf(r.rec), mark(r.rec.Open()),
			}
		}
		if o.ids {
			cells = append(cells, r.id)
		}
		t.AppendRow(cells)
	}
	t.Render()
}

// newTable draws without lines, so that columns are easy to cut.
func newTable(out io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = 0
	return t
}

// nameOf takes a record's id apart.
func nameOf(id string) (tenant, operation string) {
	tenant, rest, _ := strings.Cut(id, "#")
	operation, _, _ = strings.Cut(rest, "#")
	plain := func(s string) string {
		if u, err := url.PathUnescape(s); err == nil {
			return u
		}
		return s
	}
	if tenant = plain(tenant); tenant == idem.NoTenant {
		tenant = "(none)"
	}
	return tenant, plain(operation)
}

func ago(t, now time.Time) string { return span(now.Sub(t)) + " ago" }

// until says what the record waits for.
func until(r *idem.Record, now time.Time) string {
	relative := func(what, past string, t time.Time) string {
		switch {
		case t.IsZero():
			return "-"
		case now.Before(t):
			return what + " in " + span(t.Sub(now))
		}
		return past + " " + ago(t, now)
	}
	if r.State == idem.InProgress {
		return relative("lease ends", "lease over", r.LeaseUntil)
	}
	if r.State == idem.Unknown && r.ExpiresAt.IsZero() {
		return relative("lease ends", "lease over", r.LeaseUntil)
	}
	return relative("expires", "expired", r.ExpiresAt)
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return unit(unit(d.Round(time.Second).String(), "m", "0s"), "h", "0m")
	case d < 24*time.Hour:
		return unit(unit(d.Round(time.Minute).String(), "m", "0s"), "h", "0m")
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// unit leaves out a unit of zero behind another one.
func unit(s, larger, zero string) string {
	if strings.HasSuffix(s, larger+zero) {
		return strings.TrimSuffix(s, zero)
	}
	return s
}

func resultOf(r *idem.Record) string {
	switch {
	case r.Unavailable:
		return "not recorded"
	case r.Body.Parts > 0:
		return fmt.Sprintf("%s in %d parts", bytesOf(r.Body.Size), r.Body.Parts)
	case r.State == idem.Completed:
		return bytesOf(r.Body.Size)
	}
	return ""
}

func bytesOf(n int) string {
	if n < 10<<10 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d KB", n>>10)
}

func stepsOf(r *idem.Record) string {
	if len(r.Steps) == 0 {
		return ""
	}
	return fmt.Sprint(len(r.Steps))
}

func failureOf(r *idem.Record) string {
	if r.Failure == nil {
		return ""
	}
	return shorten(strings.TrimPrefix(r.Failure.Type+": "+r.Failure.Message, ": "), 60)
}

func mark(b bool) string {
	if b {
		return "stuck"
	}
	return ""
}

// shorten cuts a text for one line of a table.
func shorten(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// listing is what a table holds.
type listing struct {
	records       []string
	parts, outbox int
}

func (l listing) others() string {
	return fmt.Sprintf("%d parts of large results, %d outbox messages", l.parts, l.outbox)
}

func listItems(ctx context.Context, client *dynamodb.Client, tableName string) (l listing, err error) {
	projection := schema.PK + ", " + schema.SK
	scan := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &tableName, ProjectionExpression: &projection})
	for scan.HasMorePages() {
		page, err := scan.NextPage(ctx)
		if err != nil {
			return l, err
		}
		for _, item := range page.Items {
			pk, sk := stringOf(item[schema.PK]), stringOf(item[schema.SK])
			switch {
			case strings.Contains(pk, schema.PartPK):
				l.parts++
			case sk == schema.RecordSK:
				l.records = append(l.records, pk)
			case strings.HasPrefix(sk, schema.OutboxSK):
				l.outbox++
			}
		}
	}
	return l, nil
}

func stringOf(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}
