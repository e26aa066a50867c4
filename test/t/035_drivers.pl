
# Drivers of applications: the retry loops of demo/ do what they say, with psycopg and JDBC, and
# parameters may have the types that the drivers send.

use strict;
use warnings;

use IPC::Run;
use Test::More;

use FindBin;
use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $demo = "$FindBin::RealBin/../../demo";
my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.linger' => 0,
	'zklock.connection_timeout' => '1s', 'listen_addresses' => '127.0.0.1');
my $watcher = $node->backend;
$watcher->query(q{CREATE TABLE done (driver text)});
$watcher->query(q{CREATE TABLE gate (open boolean)});
$watcher->query(q{
	CREATE FUNCTION wait_for_gate() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM gate) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
	END $$});

my $user = $watcher->query('SELECT current_user');
my $address = '127.0.0.1:' . $node->port;
my %driver = (
	psycopg => [ '/usr/bin/python3', "$demo/retry.py", "postgresql://$user\@$address/postgres" ],
	JDBC => [ qw(java -XX:TieredStopAtLevel=1 -cp /usr/share/java/postgresql.jar), "$demo/Retry.java",
		"jdbc:postgresql://$address/postgres?user=$user" ]);

# Run a statement in a transaction under the lock /retry.
sub start_driver
{
	my ($driver, $statement) = @_;
	my %run = (out => '', err => '');
	$run{harness} = IPC::Run::start([ @{ $driver{$driver} }, '/retry', $statement ],
		'<', \undef, '>', \$run{out}, '2>', \$run{err},
		$run{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	return \%run;
}

sub wait_for_message
{
	my ($run, $pattern) = @_;
	until ($run->{err} =~ $pattern)
	{
		die "ended too early: $run->{err}" unless $run->{harness}->pumpable;
		$run->{harness}->pump;
	}
	return pass($pattern);
}

sub succeeds
{
	my ($run, $what) = @_;
	ok($run->{harness}->finish, "$what: succeeds") or diag($run->{err});
	return;
}

foreach my $driver (sort keys %driver)
{
	my $work = "WITH w AS MATERIALIZED (SELECT wait_for_gate()) INSERT INTO done SELECT '$driver' FROM w";
	my $count = "SELECT count(*) FROM done WHERE driver = '$driver'";

	# The lock is lost while the statement runs: nothing is committed, and the second attempt is.
	my $run = start_driver($driver, $work);
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/retry' AND claim = 'held'});
	is($watcher->query(q{SELECT zk_lock_force_release('/retry')}), '1', "$driver: the lock is taken away");
	wait_for_message($run, qr/attempt 1 failed with ZK001/);
	is($watcher->query($count), '0', "$driver: nothing was committed");
	$watcher->query('INSERT INTO gate VALUES (true)');
	succeeds($run, "$driver, after a loss");
	is($watcher->query($count), '1', "$driver: committed once");

	# ZooKeeper is away for a while.
	$zk->stop;
	$node->wait_until_away;
	$run = start_driver($driver, $work);
	wait_for_message($run, qr/attempt 1 failed with 08006/);
	$zk->start;
	succeeds($run, "$driver, without ZooKeeper at first");
	is($watcher->query($count), '2', "$driver: committed once more");
	$watcher->query('DELETE FROM gate');

	# To do the same again would take as long again.
	$run = start_driver($driver, q{SELECT zk_xact_lock_acquire('/short', lease_time => '200 ms'), pg_sleep(180)});
	ok(!$run->{harness}->finish, "$driver: a lease time that is over is no reason to retry");
	like($run->{err}, qr/lease time of lock "\/short" is over/, "$driver: the error");
	unlike($run->{err}, qr/attempt/, "$driver: no other attempt");
}

# Types of parameters, as Python has them.
my $types = <<'END';
import datetime, sys, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    for timeout in ("0", datetime.timedelta(seconds=5), None):
        print(connection.execute("SELECT zk_lock_acquire(%s, %s)", ("/types", timeout)).fetchone()[0])
    print(connection.execute("SELECT zk_semaphore_acquire(%s, %s, lease) FROM (VALUES (interval '0')) AS v (lease)",
                             ("/leases", 3)).fetchone()[0])
    print(connection.execute("SELECT zk_multilock_acquire(%s)", (["/types/1", "/types/2"],)).fetchone()[0])
    print(type(connection.execute("SELECT zk_lock_token(%s)", ("/types",)).fetchone()[0]).__name__)
    print(connection.execute("SELECT zk_run_once(%s, %s)",
                             ("/job", datetime.datetime.now(datetime.timezone.utc))).fetchone()[0])
END
my ($out, $err) = ('', '');
IPC::Run::run([ '/usr/bin/python3', '-c', $types, $driver{psycopg}[2] ], '>', \$out, '2>', \$err);
is($out, "True\nTrue\nTrue\nTrue\nTrue\nint\nTrue\n", 'psycopg: types of parameters and results') or diag($err);

done_testing();
