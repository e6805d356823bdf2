package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// The endpoint of a VPC is one of AWS: who changes a record there is not who they say they are on
// their machine.
func TestChangesAreOfTheAWSCallerUnlessTheTableIsLocal(t *testing.T) {
	const arn = "arn:aws:sts::111122223333:assumed-role/operator/alice"
	var signed atomic.Value
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed.Store(r.Header.Get("Authorization"))
		fmt.Fprintf(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn>`+
			`</GetCallerIdentityResult></GetCallerIdentityResponse>`, arn)
	}))
	defer sts.Close()
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

// A shell without $USER is the console's case too: both name the system's user.
func TestWithoutUSERTheSystemsUserChangesRecords(t *testing.T) {
	for _, unset := range []string{"USER", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"} {
		t.Setenv(unset, "")
	}
	b, err := connect(t.Context(), Globals{Table: "payments", Endpoint: "http://127.0.0.1:8000"},
		&serverClock{local: time.Now})
	require.NoError(t, err)
	is, err := user.Current()
	require.NoError(t, err)
	require.Equal(t, is.Username, b.caller(t.Context()))
}

func TestARefusalOfAWSSaysWhatToDo(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		refuse := func(code string, method idemtest.Method) {
			b.Faults.Heal()
			err := fmt.Errorf("it is refused: %w", &smithy.GenericAPIError{Code: code})
			b.Faults.Always(func(context.Context, *idemtest.Call) error {
				return &idem.StoreError{Op: string(method), Err: err}
			}, method)
		}
		for code, says := range map[string]string{
			"AccessDeniedException":     "idemctl show needs Table.GrantReader",
			"ResourceNotFoundException": "--region",
			"ExpiredTokenException":     "log in again",
		} {
			refuse(code, idemtest.Get)
			out, errs := b.want(exitFailed, "show", r1.ID())
			require.Empty(t, out)
			require.Contains(t, errs, "it is refused")
			require.Contains(t, errs, says)
		}
		refuse("AccessDeniedException", idemtest.Get)
		b.says(exitFailed, "idemctl release needs Table.GrantOperator", with(releaseR1, "--yes")...)
		require.Contains(t, hint(&smithy.GenericAPIError{Code: "AccessDeniedException"}, "check"),
			"idemctl check needs Table.GrantCheck")
		b.Faults.Heal()
		b.unknown(r1)
		b.Clock.Advance(time.Hour)
		refuse("AccessDeniedException", idemtest.Settle) // for those who may only look
		_, errs := b.want(exitFailed, with(releaseR1, "--yes")...)
		require.Contains(t, errs, "AWS does not allow it")
		require.Contains(t, errs, "Table.GrantOperator")
		require.NotContains(t, errs, "may or may not")
		refuse("InternalServerError", idemtest.Get)
		_, errs = b.want(exitFailed, "show", r1.ID())
		require.NotContains(t, errs, "--profile")
	})
}

// A mistake is told before anything is asked of AWS.
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
