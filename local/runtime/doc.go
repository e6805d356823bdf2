// Package runtime runs compiled Go Lambda functions on this machine: it starts
// the binary as a child process and serves it the Lambda Runtime API, which is
// all that lambda.Start of aws-lambda-go needs.
//
//	pool, err := runtime.Start(ctx, runtime.Function{Path: "./bootstrap", Timeout: 5 * time.Second}, nil)
//	...
//	defer pool.Close()
//	result, err := pool.Invoke(ctx, []byte(`{"paymentId":"p-1"}`), nil)
//
// # What is as in Lambda
//
//   - One invocation at a time per instance (process), several instances up to
//     a limit, the most recently used idle one first. What is different: callers
//     above the limit wait instead of being throttled.
//   - Request id, deadline, function ARN, trace id and tenant id in the
//     Runtime API's headers; the environment that Lambda sets.
//   - SIGKILL at the deadline, counted from the moment the process is given the
//     event. The caller gets errorType Sandbox.Timedout.
//   - A process that exits gives errorType Runtime.ExitError, unless it had
//     answered or posted an error (a panic does) before. The next invocation
//     starts a fresh one.
//   - 6 MB for events, a little more for answers (errorType
//     Function.ResponseSizeTooLarge).
//   - A caller that goes away does not stop the function.
//
// # What is not imitated
//
// Extensions, X-Ray, response streaming, SnapStart, provisioned concurrency,
// several invocations at once in one process (AWS_LAMBDA_MAX_CONCURRENCY),
// freezing between invocations, limits on memory, CPU and /tmp, instances
// apart per tenant, asynchronous queues and retries, throttling, IAM. A failed
// init is not tried a second time within the same invocation. Instances live
// until the pool is closed.
//
// Everything listens on 127.0.0.1, each instance on a port of its own, so that
// instances cannot take each other's work. Close leaves nothing running. On
// Linux the kernel also kills the children if this process dies without Close.
//
// Source: AWS Lambda developer guide, "Using the Lambda runtime API for custom
// runtimes", "Understanding the Lambda execution environment lifecycle",
// "Defined runtime environment variables".
package runtime
