package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/cloud"
)

// parse reads functions from a command line.
func parse(t *testing.T, args ...string) functionFlags {
	t.Helper()
	var f functionFlags
	set := flag.NewFlagSet("up", flag.ContinueOnError)
	f.register(set)
	require.NoError(t, set.Parse(args))
	require.Empty(t, set.Args())
	return f
}

// last is the name of a package by its path alone.
func last(pkg string) (string, error) { return path.Base(pkg), nil }

// What flags describe runs as a template. Nothing of it is left out.
func TestTemplateOfFlags(t *testing.T) {
	const queues = "http://queues/000000000000/"
	charge := []string{"-function", "./cmd/charge", "-route", "POST /payments", "-route", "GET /payments/{id}"}
	orders := []string{"-function", "./cmd/orders", "-queue", "order-events", "-timeout", "20s", "-env", "K=V=$W"}
	for name, c := range map[string]struct {
		args  []string
		check func(t *testing.T, p *cloud.Plan)
	}{
		"routes": {charge, func(t *testing.T, p *cloud.Plan) {
			f := p.Functions[0]
			require.Equal(t, []any{"charge", "./cmd/charge", 10 * time.Second}, []any{f.Name, f.Package, f.Timeout})
			require.Equal(t, map[string]string{"IDEM_TABLE": "idem", "IDEM_FUNCTION_TIMEOUT": "10"}, f.Env)
			require.Equal(t, map[string]cloud.Route{"POST /payments": {Function: "charge"},
				"GET /payments/{id}": {Function: "charge"}}, p.APIs[0].Routes)
			require.Empty(t, p.Queues)
			require.Equal(t, schema.ExpiresAt, p.Tables[0].Expiry)
		}},
		"alone": {charge[:2], func(t *testing.T, p *cloud.Plan) {
			require.Equal(t, map[string]string{"IDEM_TABLE": "idem", "IDEM_FUNCTION_TIMEOUT": "10"}, p.Functions[0].Env)
			require.Empty(t, p.APIs)
		}},
		"tokens": {append([]string{"-jwt"}, charge...), func(t *testing.T, p *cloud.Plan) {
			for route, is := range p.APIs[0].Routes {
				require.Equal(t, cloud.JWT, is.Auth, route)
			}
		}},
		"one API": {append(orders, append([]string{"-route", "ANY /{rest+}"}, charge...)...),
			func(t *testing.T, p *cloud.Plan) {
				require.Len(t, p.APIs, 1)
				require.Equal(t, "orders", p.APIs[0].Routes["ANY /{rest+}"].Function)
				require.Equal(t, "charge", p.APIs[0].Routes["POST /payments"].Function)
				for _, f := range p.Functions {
					require.Equal(t, queues+"order-events", f.Env["QUEUE_ORDER_EVENTS"], f.Name)
				}
			}},
		"queue": {orders, func(t *testing.T, p *cloud.Plan) {
			require.Equal(t, map[string]string{"IDEM_TABLE": "idem", "IDEM_FUNCTION_TIMEOUT": "20", "K": "V=$W",
				"IDEM_QUEUE_BATCH_SIZE": "10", "IDEM_QUEUE_REDELIVERY": "1555200",
				"QUEUE_ORDER_EVENTS": queues + "order-events"}, p.Functions[0].Env)
			dead, queue := p.Queues[0], p.Queues[1]
			require.Equal(t, []string{"order-events-dead", "order-events", "order-events-dead"},
				[]string{dead.Name, queue.Name, queue.DeadLetters})
			require.Equal(t, "120", queue.Attributes["VisibilityTimeout"])
			require.Equal(t, "order-events", p.Mappings[0].Queue)
			require.Equal(t, 10, p.Mappings[0].BatchSize)
			require.Empty(t, p.APIs)
		}},
		"FIFO": {append(orders, "-fifo"), func(t *testing.T, p *cloud.Plan) {
			for i, name := range []string{"order-events-dead.fifo", "order-events.fifo"} {
				require.Equal(t, []string{name, "true"}, []string{p.Queues[i].Name, p.Queues[i].Attributes["FifoQueue"]})
			}
			require.Equal(t, queues+"order-events.fifo", p.Functions[0].Env["QUEUE_ORDER_EVENTS"])
		}},
		"relay": {append(orders, "-function", "example.com/relay", "-stream", "-schedule", "1m"),
			func(t *testing.T, p *cloud.Plan) {
				relay := p.Functions[1]
				require.JSONEq(t, `{"order-events": "`+queues+`order-events"}`, relay.Env[schema.EnvOutboxRoutes])
				require.NotContains(t, p.Functions[0].Env, schema.EnvOutboxRoutes)
				stream := p.Mappings[1]
				require.Equal(t, []string{"relay", "idem", schema.OutboxFilter},
					[]string{stream.Function, stream.Table, stream.Filter})
				require.Equal(t, []any{"relay", time.Minute}, []any{p.Schedules[0].Function, p.Schedules[0].Every})
			}},
		"own values": {append(orders, "-env", "IDEM_QUEUE_REPEAT=repeatable", "-env", "IDEM_TABLE=mine", "-schedule", "2h"),
			func(t *testing.T, p *cloud.Plan) {
				require.Equal(t, "repeatable", p.Functions[0].Env[schema.EnvQueueRepeat])
				require.Equal(t, "mine", p.Functions[0].Env[schema.EnvTable])
				require.Equal(t, 2*time.Hour, p.Schedules[0].Every)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := parse(t, c.args...).template(last)
			require.NoError(t, err)
			text, err := json.Marshal(map[string]any{"Resources": made})
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "local.template.json")
			require.NoError(t, os.WriteFile(path, text, 0o600))
			p, err := cloud.Read(path, &cloud.ReadOptions{Endpoints: cloud.Endpoints{Queues: "http://queues"}})
			require.NoError(t, err)
			require.Empty(t, p.Notes)
			require.Empty(t, p.Silent)
			require.Len(t, p.Tables, 1)
			c.check(t, p)
		})
	}
}

// All that is wrong with flags is reported, with the flag.
func TestFlagsThatAreRefused(t *testing.T) {
	const worker = "-function ./a -queue q "
	for args, want := range map[string]string{
		"-jwt":                "there is no -function",
		"-fifo " + worker:     "-fifo: write it behind the -function that it belongs to",
		"-function ./a -fifo": "-function ./a: -fifo is for a -queue, and it has none",
		"-function ./a -route x": `-route x: route "x" is neither "$default" nor like "POST /payments/{id}" or ` +
			`"ANY /{rest+}"`,
		worker + "-queue r":                     "-queue r: ./a has the queue q, and a function has one",
		"-function ./a -queue q.fifo":           "-queue q.fifo: write a name of up to 70 letters",
		worker + "-timeout 1h":                  "-timeout 1h: write a multiple of 1s up to 15m0s, such as 5s",
		worker + "-timeout 1.5s":                "-timeout 1.5s: write a multiple of 1s",
		worker + "-schedule 30s":                "-schedule 30s: write a multiple of 1m0s",
		worker + "-schedule often":              "-schedule often: write a multiple of 1m0s",
		worker + "-env K":                       "-env K: write it as NAME=VALUE",
		worker + "-stream=perhaps":              "-stream perhaps: leave the value out",
		worker + "-function ./b/a -schedule 1m": "-function ./b/a: its name is a and that of ./a is a",
		worker + "-function ./b -queue Q":       "-queue Q: there is the queue q already",
		worker + "-function ./none -queue r":    "-function ./none: there is no such package",
		worker + "-route $default -function ./b -route $default"://
		"-route $default: it is a route of ./a already",
		worker + "-timeout x -function ./a -env x": //
		"-timeout x: write a multiple of 1s up to 15m0s, such as 5s\n-env x: write it as NAME=VALUE\n" +
			"-function ./a: its name is a and that of ./a is a",
	} {
		t.Run(args, func(t *testing.T) {
			_, err := parse(t, strings.Fields(args)...).template(func(pkg string) (string, error) {
				if pkg == "./none" {
					return "", errors.New("there is no such package")
				}
				return last(pkg)
			})
			require.ErrorContains(t, err, want)
		})
	}
	_, err := parse(t, "-function", "./a").write(t.Context(), []string{"/payments"}, ".", "")
	require.ErrorContains(t, err, `"/payments" is no flag: write values with a space in quotes`)
}

// A function is a main package.
func TestNamesOfPackages(t *testing.T) {
	for pkg, want := range map[string]string{
		".": "stack", "../../cloud/testdata/shop": "shop",
		"github.com/idem-go/idempotency/lambda/functions/relay": "relay",
	} {
		name, err := nameOf(t.Context(), ".", pkg)
		require.NoError(t, err)
		require.Equal(t, want, name)
	}
	for pkg, want := range map[string]string{
		"../../cloud": "it is package cloud, and a function is a main package",
		"./none":      "there is no such package in .: ",
		"./x y":       "there is no such package in .: ",
		"../...":      "it is not one package",
		"main.go":     "it is not one package: name the folder of a main package, such as ./cmd/charge",
	} {
		_, err := nameOf(t.Context(), ".", pkg)
		require.ErrorContains(t, err, want, pkg)
	}
}

// A file has the same flags, whose packages are in its folder.
func TestFlagsOfAFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "local.flags")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("# payments\n\n-function ./cmd/charge\n  -route POST /payments\n\t-env  GREETING=good \"day\" # to all\r\n" +
		"-queue=orders\n-fifo\n")
	args, err := withFiles([]string{"-fresh", "@" + file, "-jwt"})
	require.NoError(t, err)
	require.Equal(t, []string{"-dir=" + dir, "-fresh", "-function=./cmd/charge", "-route=POST /payments",
		"-env=GREETING=good \"day\" # to all", "-queue=orders", "-fifo", "-jwt"}, args)
	made, err := parse(t, args[2:]...).template(last)
	require.NoError(t, err)
	require.Contains(t, made, "ordersQueue")
	for text, want := range map[string]string{
		"-fifo\nroute POST /": file + `:2: "route POST /" is no flag: write one a line, such as -route POST /payments`,
	} {
		write(text)
		_, err := withFiles([]string{"@" + file})
		require.EqualError(t, err, want)
	}
	_, err = withFiles([]string{"@" + file + "s"})
	require.ErrorContains(t, err, "the file of flags: open "+file+"s")
	args, err = withFiles([]string{"-fresh", "infra/cdk.out"})
	require.NoError(t, err)
	require.Equal(t, []string{"-fresh", "infra/cdk.out"}, args)
}

// A function of flags answers its route, gets the messages of its queue, and ends without a trace.
func TestUpWithoutTemplate(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv(envRunDir, run)
	file := filepath.Join(t.TempDir(), "local.flags")
	require.NoError(t, os.WriteFile(file, []byte("-function ./testdata/shop\n-route POST /charges\n-queue orders\n"+
		"-fifo\n-jwt\n"), 0o600))
	for name, c := range map[string]struct {
		more  []string
		quiet bool
	}{"with output": {}, "quiet": {[]string{"-quiet"}, true}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, done := &childtest.Output{}, make(chan error, 1)
			go func() { done <- up(ctx, append(c.more, "@"+file, "-dir", "../../cloud"), out) }()
			got := func(pattern string) (found string) {
				t.Helper()
				require.Eventually(t, func() bool {
					if m := regexp.MustCompile(pattern).FindStringSubmatch(out.String()); m != nil {
						found = m[len(m)-1]
					}
					return found != "" || len(done) > 0
				}, time.Minute, 10*time.Millisecond, pattern)
				require.NotEmpty(t, found, "%s: %s", pattern, out)
				return found
			}
			url, token := got(`api +(\S+) of Api`), got(`a token of acme: (\S+)\n`)
			got(`console  (\S+) of idem`) // the table is one of records
			post := func(token string) string {
				t.Helper()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader("order 1"))
				require.NoError(t, err)
				req.Header.Set("Authorization", token)
				req.Header.Set("Content-Type", "text/plain")
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				return string(text)
			}
			require.JSONEq(t, `{"message": "Unauthorized"}`, post(""))
			require.Equal(t, "sent", post(token), out)
			got(`export AWS_REGION=\S+ .*(\n)export IDEM_TABLE=idem\nexport AWS_ENDPOINT_URL=\S+\n` +
				`export AWS_ENDPOINT_URL_DYNAMODB=\S+\nexport AWS_ENDPOINT_URL_SQS=`) // one block
			sqs := queue.NewClient(got(`AWS_ENDPOINT_URL_SQS=(\S+)`))
			orders, err := sqs.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String("orders.fifo")})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				n, err := queue.Held(ctx, sqs, *orders.QueueUrl)
				return err == nil && n == 0
			}, time.Minute, 10*time.Millisecond, "the function gets the message: %s", out)
			if c.quiet {
				require.NotRegexp(t, `function|queue |route|shop|got|starting|ready|stopped`, out)
			} else {
				got(`got .*"body":"(order 1)"`)
			}
			cancel()
			require.NoError(t, <-done)
			for _, url := range regexp.MustCompile(`http://127\S+`).FindAllString(out.String(), -1) {
				whole := regexp.MustCompile(regexp.QuoteMeta(url) + `\s`)
				require.Len(t, whole.FindAllString(out.String(), -1), 1, "%s in %s", url, out)
			}
			_, err = http.Get(url)
			require.Error(t, err, "it does not listen any more")
			entries, err := filepath.Glob(filepath.Join(run, "[0-9]*"))
			require.NoError(t, err)
			require.Empty(t, entries, "only the tables are left")
		})
	}
}
