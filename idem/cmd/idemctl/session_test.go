package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// The endpoint of a VPC is one of AWS: who changes a record there is not who they say they are on their machine.
func TestChangesAreOfTheAWSCallerUnlessTheTableIsLocal(t *testing.T) {
	const arn = "arn:aws:sts::111122223333:assumed-role/operator/alice"
	var signed atomic.Value
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed.Store(r.Header.Get("Authorization"))
		fmt.Fprintf(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn>`+
			`</GetCallerIdentityResult></GetCallerIdentityResponse>`, arn)
	}))
	defer sts.Close()
	system, err := user.Current()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "credentials"),
		[]byte("[production]\naws_access_key_id = PROFILE\naws_secret_access_key = x\n"), 0o600))
	const vpc, local = "https://vpce-1-dynamodb.eu-central-1.vpce.amazonaws.com", "http://127.0.0.1:8000"
	for name, c := range map[string]struct {
		endpoint, flag, profile, keys string
		who, signer                   string
	}{
		"a VPC, by AWS_PROFILE":           {vpc, "", "production", "", arn, "PROFILE"},
		"a VPC, by --profile":             {vpc, "production", "", "", arn, "PROFILE"},
		"a VPC, by keys":                  {vpc, "", "", "KEYS", arn, "KEYS"},
		"no endpoint":                     {"", "", "", "KEYS", arn, "KEYS"},
		"a proxy, by keys":                {"http://dynamodb.internal", "", "", "KEYS", arn, "KEYS"},
		"this machine, by AWS_PROFILE":    {local, "", "production", "", arn, "PROFILE"},
		"this machine, by keys":           {local, "", "", "KEYS", "carol", ""},
		"this machine, without keys":      {local, "", "", "", "carol", ""},
		"another machine, without keys":   {"http://dynamodb:8000", "", "", "", "carol", ""},
		"this machine, by its other name": {"http://localhost:8000", "", "", "KEYS", "carol", ""},
		"a shell without $USER":           {local, "", "", "", system.Username, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, unset := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN",
				"AWS_DEFAULT_PROFILE"} {
				t.Setenv(unset, "")
			}
			for variable, value := range map[string]string{
				"AWS_ENDPOINT_URL_STS": sts.URL, "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "credentials"),
				"AWS_CONFIG_FILE": filepath.Join(dir, "config"),
				"AWS_REGION":      "eu-central-1", "USER": "carol", "AWS_PROFILE": c.profile, "AWS_ACCESS_KEY_ID": c.keys,
			} {
				t.Setenv(variable, value)
			}
			if c.keys != "" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
			}
			if c.who == system.Username {
				t.Setenv("USER", "")
			}
			signed.Store("")
			b, err := connect(t.Context(), Globals{Table: "payments", Endpoint: c.endpoint, Profile: c.flag},
				&serverClock{local: time.Now})
			require.NoError(t, err)
			require.Equal(t, c.who, b.caller(t.Context()))
			signature := signed.Load().(string)
			require.Equal(t, c.signer != "", strings.Contains(signature, "Credential="+c.signer+"/"), signature)
		})
	}
}

// A mistake is reported before anything is asked of AWS.
func TestWithoutARegionOrItsProfileTheCommandSaysSo(t *testing.T) {
	for profile, says := range map[string]string{"": "no region is set: use --region", "none": "check --profile"} {
		home := t.TempDir()
		for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
			t.Setenv(name, "")
		}
		t.Setenv("AWS_CONFIG_FILE", home+"/config")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", home+"/credentials")
		_, err := connect(t.Context(), Globals{Table: "payments", Profile: profile}, &serverClock{local: time.Now})
		var mistake *usageError
		require.ErrorAs(t, err, &mistake)
		require.Contains(t, err.Error(), says)
	}
}

// local is the environment of a DynamoDB Local.
func local(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "idemlocal", "AWS_SECRET_ACCESS_KEY": "idemlocal", "USER": "alice",
	} {
		t.Setenv(name, value)
	}
}

// from runs the command on a machine whose clock is ahead by that much. It ends with the exit code.
func (o *tool) from(t *testing.T, ahead time.Duration, endpoint string, code int, args ...string) (said string) {
	t.Helper()
	local(t)
	var out, errs bytes.Buffer
	got := run(t.Context(), append(args, "--table", o.table, "--endpoint", endpoint),
		&terminal{in: strings.NewReader(""), out: &out, err: &errs},
		outside(func() time.Time { return time.Now().Add(ahead) }))
	said = strings.Join(strings.Fields(out.String()+errs.String()), " ")
	require.Equal(t, code, got, "%v: %s", args, said)
	return said
}

// answering is a proxy of DynamoDB Local, whose replies have other headers.
func answering(t *testing.T, change func(http.Header)) (endpoint string) {
	t.Helper()
	u, err := url.Parse(dynamotest.Endpoint(t))
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host },
		ModifyResponse: func(r *http.Response) error { change(r.Header); return nil },
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil // the server adds none
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestAMachineThatIsFastReleasesNothingThatMayRun(t *testing.T) {
	o := newTool(t)
	o.unknown(r1) // parked: its effect may be on its way until its lease is over
	for _, ahead := range []time.Duration{0, 15 * time.Minute} {
		said := o.from(t, ahead, dynamotest.Endpoint(t), exitFailed, "release", r1.ID(), "--reason",
			"the provider has none", "--yes")
		require.Contains(t, said, "the parked attempt may still be running")
		require.Equal(t, ahead > 0, strings.Contains(said, "The clock of this machine is fast by 1"), said)
	}
	_, err := idem.Do(t.Context(), o.engine, r1, 1, result)
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
}

func TestAMachineThatIsFastLeavesARunningClaimAlone(t *testing.T) {
	o := newTool(t)
	started, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = idem.Do(context.WithoutCancel(t.Context()), o.engine, r1, 1, func(context.Context, int) (int, error) {
			close(started)
			<-end
			return 1, nil
		})
	}()
	<-started
	defer func() { close(end); <-ended }()
	for _, which := range [][]string{{r1.ID(), "--yes"},
		{"--operation", "refund", "--state", "in_progress", "--limit", "5", "--seen", "0011223344556677"}} {
		o.from(t, 15*time.Minute, dynamotest.Endpoint(t), exitFailed,
			append([]string{"release", "--reason", "the provider has none"}, which...)...)
		_, err := idem.Do(t.Context(), o.engine, r1, 1, result)
		require.ErrorIs(t, err, idem.ErrInFlight, "the handler ran while the first one had not ended")
	}
}

func TestAMachineThatIsSlowRecordsAnOutcomeThatLasts(t *testing.T) {
	o := newTool(t)
	key := idem.Operation{Name: "refund", Retention: 5 * time.Minute}.Key("acme", "r-1")
	o.unknown(key)
	said := o.from(t, -10*time.Minute, dynamotest.Endpoint(t), exitDone, "resolve", key.ID(), "--to", "failed",
		"--message", "declined", "--reason", "case 1", "--yes")
	require.Contains(t, said, "The clock of this machine is slow by ")
	_, err := idem.Do(t.Context(), o.engine, key, 1, result)
	require.ErrorContains(t, err, "declined", "the outcome had expired, and the handler ran again")
	o.from(t, -10*time.Minute, dynamotest.Endpoint(t), exitDone, "extend", key.ID(), "--for", "14m",
		"--reason", "case 1", "--yes")
}

// The console uses the same clock as long as it is served.
func TestAMachineThatIsFastServesAConsoleThatReleasesNothingThatMayRun(t *testing.T) {
	o := newTool(t)
	o.unknown(r1)
	local(t)
	ctx, interrupt := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"console", "--table", o.table, "--endpoint", dynamotest.Endpoint(t)},
			&terminal{in: strings.NewReader(""), out: out, err: io.Discard},
			outside(func() time.Time { return time.Now().Add(15 * time.Minute) }))
	}()
	address, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(t, err)
	base, _, _ := strings.Cut(address, "?")
	client := browser(t)
	fetch(t, client, strings.TrimSpace(address))
	_, page := fetch(t, client, base+"act?"+url.Values{"id": {r1.ID()}, "to": {"released"}}.Encode())
	require.Contains(t, page, "the parked attempt may still be running")
	interrupt()
	require.Equal(t, exitDone, <-ended)
}

// Where the time is not known, records are shown, and nothing is changed.
func TestReplyWithoutADateRefusesChanges(t *testing.T) {
	o := newTool(t)
	o.unknown(r1)
	endpoint := answering(t, func(h http.Header) { h.Del("Date") })
	said := o.from(t, 0, endpoint, exitDone, "show", r1.ID())
	require.Contains(t, said, "have no Date: times are those of this machine")
	for _, args := range [][]string{
		{"release", r1.ID(), "--yes", "--who", "bob", "--reason", "the provider has none"},
		{"resolve", "--operation", "refund", "--limit", "5", "--seen", "0011223344556677", "--to", "completed", "--no-result",
			"--reason", "case 1"},
		{"console"},
	} {
		said := o.from(t, 0, endpoint, exitFailed, args...)
		require.Contains(t, said, "nothing was changed: leave the header in")
	}
}

// Dates have whole seconds: who replaces a resolution within the same one comes after it.
func TestChangesOfOneSecondKeepTheirOrder(t *testing.T) {
	o := newTool(t)
	o.unknown(r1)
	date := time.Now().UTC().Format(http.TimeFormat)
	endpoint := answering(t, func(h http.Header) { h.Set("Date", date) })
	var reasons []string
	for n := range 8 {
		why := fmt.Sprint("case ", n)
		o.from(t, 0, endpoint, exitDone, "resolve", r1.ID(), "--to", "completed", "--no-result", "--again",
			"--yes", "--reason", why, "--provider-says", "it has it")
		reasons = append(reasons, why)
	}
	said := o.from(t, 0, endpoint, exitDone, "history", r1.ID(), "-o", "json")
	require.Equal(t, reasons, regexp.MustCompile("case [0-9]").FindAllString(said, -1))
}

// The clock goes on with the machine's between replies, also if that is set in between.
func TestTheClockIsThatOfTheLastReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := time.Hour
		c := &serverClock{local: func() time.Time { return time.Now().Add(machine) }}
		reply := func(at time.Time) { c.hear(http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}) }
		_, known := c.fast()
		require.False(t, known)
		require.Equal(t, time.Now().Add(machine), c.now())
		c.hear(http.Header{"Date": {"yesterday"}})
		_, known = c.fast()
		require.False(t, known)
		reply(time.Now())
		time.Sleep(90 * time.Second)
		require.WithinDuration(t, time.Now(), c.now(), time.Second)
		require.False(t, c.now().After(time.Now()))
		ahead, known := c.fast()
		require.True(t, known)
		require.Equal(t, time.Hour, ahead.Truncate(time.Second))
		machine = -time.Hour // somebody has set it
		reply(time.Now())
		require.WithinDuration(t, time.Now(), c.now(), time.Second)
	})
}

// Each write is ahead of the clock by less than the margin, where the one before has brought it.
func TestTheClockIsNeverAheadByMoreThanTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &serverClock{local: time.Now}
		for round := range 5 {
			for n := range 40 { // writes of machines whose clocks are ahead by up to eight seconds
				c.hear(http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}})
				before := c.now()
				c.follow(time.Now().Add(time.Duration(n) * 200 * time.Millisecond))
				require.False(t, c.now().Before(before), "it went back")
				require.Less(t, time.Until(c.now()), late)
			}
			require.Greater(t, time.Until(c.now()), time.Second/2, "it followed none")
			time.Sleep(time.Duration(round) * 270 * time.Millisecond)
		}
	})
}
