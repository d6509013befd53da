// Command probe is what the cluster's own Pods run: sandboxes, and the Pods of its tests.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  probe wait                 until SIGTERM
  probe serve PORT           answer HTTP requests with the host name
  probe get COUNT URL        print the answers to COUNT requests, a line each
  probe lookup NAME          print the addresses of a name
  probe env NAME             print a variable
  probe read FILE            print a file
  probe write FILE TEXT      write a file
  probe exit STATUS MESSAGE  print the message, leave it as termination message, and exit`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch command := strings.Join(arguments[:min(1, len(arguments))], ""); {
	case command == "wait" && len(arguments) == 1:
		<-ctx.Done()
		return nil
	case command == "serve" && len(arguments) == 2:
		return serve(ctx, arguments[1])
	case command == "get" && len(arguments) == 3:
		return get(ctx, arguments[1], arguments[2])
	case command == "lookup" && len(arguments) == 2:
		addresses, err := net.DefaultResolver.LookupHost(ctx, arguments[1])
		fmt.Println(strings.Join(addresses, " "))
		return err
	case command == "env" && len(arguments) == 2:
		fmt.Println(os.Getenv(arguments[1]))
		return nil
	case command == "read" && len(arguments) == 2:
		content, err := os.ReadFile(arguments[1])
		fmt.Print(string(content))
		return err
	case command == "write" && len(arguments) == 3:
		return os.WriteFile(arguments[1], []byte(arguments[2]), 0o644)
	case command == "exit" && len(arguments) == 3:
		return exit(arguments[1], arguments[2])
	}
	return fmt.Errorf("unknown arguments %q\n%s", arguments, usage)
}

func serve(ctx context.Context, port string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	answer := func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, host) }
	server := &http.Server{Addr: ":" + port, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Shutdown(context.Background()) })
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// get makes a new connection for each request, so that a Service chooses anew.
func get(ctx context.Context, count, url string) error {
	times, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range times {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		fmt.Println(strings.TrimSpace(string(body)))
	}
	return nil
}

func exit(status, message string) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return err
	}
	fmt.Println(message)
	if err := os.WriteFile("/dev/termination-log", []byte(message), 0o644); err != nil {
		return err
	}
	os.Exit(code)
	return nil
}
