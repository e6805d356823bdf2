package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
)

type recordsTask struct {
	State string
	Limit int
	IDs   bool
}

func (t *recordsTask) flags(fs *flag.FlagSet, _ *options) {
	fs.StringVar(&t.State, "state", "", "of this state only, such as unknown")
	fs.IntVar(&t.Limit, "limit", 50, "how many, the latest first; 0 for all")
	fs.BoolVar(&t.IDs, "ids", false, "with the records' ids, as resolving needs them")
}

// check refuses values with which the table would look empty.
func (t *recordsTask) check() error {
	states := []idem.State{idem.Pending, idem.InProgress, idem.Completed, idem.Failed, idem.Released, idem.Unknown}
	switch {
	case t.State != "" && !slices.Contains(states, idem.State(t.State)):
		return misuse("-state is %q; there are: %s", t.State, strings.Trim(fmt.Sprint(states), "[]"))
	case t.Limit < 0:
		return misuse("-limit is %d: use 0 for all", t.Limit)
	}
	return nil
}

func (t *recordsTask) run(ctx context.Context, s *stack, out io.Writer) error {
	client, err := newDynamoDB(s.db.Endpoint())
	if err != nil {
		return err
	}
	store, err := dynamostore.New(client, recordsTable, nil)
	if err != nil {
		return err
	}
	ids, parts, messages, err := listItems(ctx, client)
	if err != nil {
		return fmt.Errorf("cannot read the table %s: %w", recordsTable, err)
	}
	var rows []row
	for _, id := range ids {
		rec, err := store.Get(ctx, id)
		if rec == nil && err == nil {
			continue // deleted since it was listed
		}
		if t.State == "" || rec != nil && string(rec.State) == t.State {
			rows = append(rows, row{id, rec, err})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.updated(), a.updated()) })
	if t.Limit > 0 {
		rows = rows[:min(t.Limit, len(rows))]
	}
	t.print(out, rows, time.Now())
	fmt.Fprintf(out, "%d of %d records; beside them %d parts of large results, %d outbox messages\n", len(rows), len(ids), parts, messages)
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

func (t *recordsTask) print(out io.Writer, rows []row, now time.Time) {
	shown := newTable(out)
	head := table.Row{"tenant", "operation", "state", "attempt", "updated", "lease or expiry", "result", "steps", "error", "open"}
	if t.IDs {
		head = append(head, "id")
	}
	shown.AppendHeader(head)
	for _, r := range rows {
		tenant, operation := nameOf(r.id)
		cells := table.Row{tenant, operation, "UNREADABLE", "", "", "", "", "", shorten(fmt.Sprint(r.err), 60), ""}
		if r.rec != nil {
			cells = table.Row{
				tenant, operation, r.rec.State, r.rec.Attempt, ago(r.rec.UpdatedAt, now), until(r.rec, now),
				resultOf(r.rec), when(len(r.rec.Steps) > 0, len(r.rec.Steps)), failureOf(r.rec), when(r.rec.Open(), "open"),
			}
		}
		if t.IDs {
			cells = append(cells, r.id)
		}
		shown.AppendRow(cells)
	}
	shown.Render()
}

// newTable draws no lines, so that columns are easy to cut.
func newTable(out io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = 0
	return t
}

// nameOf splits a record's id.
func nameOf(id string) (tenant, operation string) {
	tenant, rest, _ := strings.Cut(id, "#")
	operation, _, _ = strings.Cut(rest, "#")
	plain := func(s string) string {
		if u, err := url.PathUnescape(s); err == nil {
			return u
		}
		return s
	}
	if tenant = plain(tenant); tenant == idem.SingleTenant {
		tenant = "(none)"
	}
	return tenant, plain(operation)
}

func ago(t, now time.Time) string { return span(now.Sub(t)) + " ago" }

// until says when the record's lease ends, or when it expires.
func until(r *idem.Record, now time.Time) string {
	what, past, at := "expires", "expired", r.ExpiresAt
	if r.State == idem.InProgress || r.State == idem.Unknown && at.IsZero() {
		what, past, at = "lease ends", "lease over", r.LeaseUntil
	}
	switch {
	case at.IsZero():
		return "-"
	case now.Before(at):
		return what + " in " + span(at.Sub(now))
	}
	return past + " " + ago(at, now)
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	if d >= 24*time.Hour {
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	unit := time.Millisecond
	switch {
	case d >= time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	case d >= time.Second:
		unit = 100 * time.Millisecond
	}
	return zeros.ReplaceAllString(d.Round(unit).String(), "$1")
}

// zeros matches units of zero after another unit.
var zeros = regexp.MustCompile(`([hm])(?:0m)?0s$`)

func resultOf(r *idem.Record) string {
	switch {
	case r.Omitted:
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

func failureOf(r *idem.Record) string {
	if r.Failure == nil {
		return ""
	}
	return shorten(strings.TrimPrefix(r.Failure.Type+": "+r.Failure.Message, ": "), 60)
}

// when leaves a cell empty that has nothing to say.
func when(there bool, cell any) any {
	if there {
		return cell
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

// listItems returns the records' ids, and how many other items there are.
func listItems(ctx context.Context, client *dynamodb.Client) (ids []string, parts, messages int, err error) {
	scan := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: aws.String(recordsTable), ProjectionExpression: aws.String(schema.PK + ", " + schema.SK),
	})
	for scan.HasMorePages() {
		page, err := scan.NextPage(ctx)
		if err != nil {
			return nil, 0, 0, err
		}
		for _, item := range page.Items {
			pk, sk := stringOf(item[schema.PK]), stringOf(item[schema.SK])
			switch {
			case strings.Contains(pk, schema.PartPK):
				parts++
			case sk == schema.RecordSK:
				ids = append(ids, pk)
			case strings.HasPrefix(sk, schema.OutboxSK):
				messages++
			}
		}
	}
	return ids, parts, messages, nil
}

func stringOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}
