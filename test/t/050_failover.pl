
# A failover as Patroni does it, with streaming replication: the primary is cut off from
# ZooKeeper and from its standby, the standby is promoted, and the old primary still runs.
# First the replication is asynchronous, then synchronous.

use strict;
use warnings;

use Time::HiRes qw(usleep);

use FaultNet;
use PgWire;
use ZklockTest;

my $leader = '/leaders/primary';
my $leads = "SELECT zk_is_leader('$leader')";
my $zk = ZooKeeper->new;

# --- two servers, and a network that can be cut ---

my $to_zk = FaultNet->new;
my %hosts = map { $_ => $to_zk->link($_, 'zk', $zk->address(1)) } 'north', 'south';
$to_zk->run;

my $north = ZklockNode->started('north', undef, 'zklock.hosts' => $hosts{north},
	'zklock.session_timeout' => '8s', 'zklock.leader_of' => $leader, 'zklock.on_lost' => 'notice',
	'listen_addresses' => '127.0.0.1', 'track_commit_timestamp' => 'on',
	'wal_log_hints' => 'on', 'wal_keep_size' => '64MB', 'wal_receiver_status_interval' => '1s',
	init => [ allows_streaming => 1 ]);
my $south = ZklockNode->new('south');
my %node = (north => $north, south => $south);

my $replication = FaultNet->new;
my %upstream = $replication->link_nodes($north, $south);
$replication->run;

$north->safe_psql('postgres', q{
	CREATE TABLE work (server text, n int, begun timestamptz);
	CREATE TABLE job_runs (job text PRIMARY KEY, server text)});
$north->backup('for_south');
$south->init_from_backup($north, 'for_south');
follow('south');
$south->start;
$north->wait_for_catchup($south, 'replay');

sub follow
{
	my ($name) = @_;
	return $node{$name}->follow($upstream{$name}, 'zklock.node_name' => $name, 'zklock.hosts' => $hosts{$name});
}

sub set_links
{
	my ($net, $name, $other, $mode) = @_;
	$net->set($name, $other, $mode);
	$net->set($other, $name, $mode);
	return;
}

# No server is told of the cut: packets just do not arrive.
sub isolate { my ($name) = @_; set_links($to_zk, $name, 'zk', 'hold'); return set_links($replication, 'north', 'south', 'hold'); }
sub heal { my ($name) = @_; set_links($to_zk, $name, 'zk', 'open'); return set_links($replication, 'north', 'south', 'open'); }

sub wait_for_line
{
	my ($node, $expected) = @_;
	return $node->poll_query_until('postgres',
		q{SELECT string_agg(server || CASE WHEN leads THEN '*' ELSE '' END, ' ' ORDER BY position) FROM zk_leaders}, $expected);
}

# --- clients that write on the leader only, and remember what was confirmed ---

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my %writer;
my $runs = 0;

sub start_writers
{
	$runs++;
	foreach my $name (sort keys %node)
	{
		my $pid = fork // die "could not fork: $!";
		next if $writer{$name} = $pid;
		eval { write_on($name, "$directory/$name.$runs") };
		POSIX::_exit(0);
	}
	return;
}

sub write_on
{
	my ($name, $file) = @_;
	my ($pg, $n) = (undef, 1000 * $runs * 100);
	open my $confirmed, '>', $file or die "could not open: $!";
	$confirmed->autoflush;
	while (1)
	{
		$pg = eval { PgWire->new($node{$name}->host, $node{$name}->port, 'writer', patience => 600) } if !$pg || !$pg->is_alive;
		my $result = $pg ? $pg->query("INSERT INTO work SELECT '$name', " . ++$n
			. ", clock_timestamp() WHERE zk_is_leader('$leader') RETURNING n") : { error => 'lost' };
		print $confirmed "$result->{rows}[0][0]\n" if !$result->{error} && @{ $result->{rows} };
		usleep(5_000);
	}
	return;
}

sub stop_writers
{
	foreach my $name (sort keys %writer)
	{
		kill 'KILL', $writer{$name};
		waitpid delete $writer{$name}, 0;
		$node{$name}->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'writer'});
		$node{$name}->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'writer'});
	}
	return;
}

END
{
	my $status = $?;
	kill 'KILL', values %writer;
	waitpid $_, 0 foreach values %writer;
	$? = $status;
}

sub wait_for_rows
{
	my ($on, $server, $since) = @_;
	return $node{$on}->wait_until("SELECT count(*) >= 20 FROM work WHERE server = '$server' AND begun > '$since'");
}

sub now { return $north->safe_psql('postgres', 'SELECT clock_timestamp()'); }

# How many of the rows that were confirmed on one server are missing on another?
sub count_lost
{
	my ($name, $on) = @_;
	my @confirmed = split /\n/, slurp_file("$directory/$name.$runs");
	cmp_ok(scalar(@confirmed), '>', 20, "$name has written, and that was confirmed");
	return $node{$on}->safe_psql('postgres', 'SELECT count(*) FROM unnest(ARRAY[' . join(',', @confirmed) . "]) AS c (n)"
		  . " WHERE NOT EXISTS (SELECT FROM work WHERE server = '$name' AND work.n = c.n)");
}

# The last commit of the old leader is before the first write of the new one began.
sub do_not_interleave
{
	my ($old, $new, $since) = @_;
	my $last = $node{$old}->safe_psql('postgres', "SELECT max(pg_xact_commit_timestamp(xmin)) FROM work WHERE server = '$old'");
	my $first = $node{$new}->safe_psql('postgres', "SELECT min(begun) FROM work WHERE server = '$new' AND begun > '$since'");
	is($node{$new}->safe_psql('postgres', "SELECT '$last'::timestamptz < '$first'"), 't',
		"$old wrote until $last, and $new from $first on");
	return;
}

# --- asynchronous replication ---

$north->wait_until($leads);
ok(wait_for_line($north, 'north*'), 'the primary leads, and the standby does not stand');
start_writers();
wait_for_rows('south', 'north', '-infinity');

# The job is done, ZooKeeper knows it, and the standby has not heard of it.
my $run = q{SELECT zk_xact_run_once('/jobs/%s', '2024-05-05 02:00Z', timeout => '1 min', retry => true)};
my $tick = sprintf $run, 'before';
set_links($replication, 'north', 'south', 'hold');
is($north->safe_psql('postgres', "BEGIN; $tick; INSERT INTO job_runs VALUES ('before', 'north'); COMMIT"), 't', 'a job runs');
$north->wait_until(q{SELECT state = 'done' FROM zk_jobs() WHERE path = '/jobs/before'});

my %open = map { $_ => $north->backend } 'leader', 'lock', 'session lock', 'job';
$open{leader}->query("BEGIN; INSERT INTO work VALUES ('late', 1); $leads");
$open{lock}->query(q{BEGIN; SELECT zk_xact_lock_acquire('/x'); INSERT INTO work VALUES ('late', 2)});
$open{'session lock'}->query(q{SELECT zk_lock_acquire('/y'); BEGIN; INSERT INTO work VALUES ('late', 3)});
$open{job}->query('BEGIN; ' . sprintf($run, 'during') . q{; INSERT INTO job_runs VALUES ('during', 'north')});

my $isolated = now();
isolate('north');
$south->promote;
is($south->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', 'the standby is promoted at once');
ok(wait_for_line($south, 'north* south'), 'and stands behind the old primary, whose session has not expired');
is($south->safe_psql('postgres', $leads), 'f', 'so the new primary does not lead yet');

$north->wait_until("SELECT NOT zk_is_leader('$leader')");
pass('the leadership of the old primary ends by itself');
is($open{$_}->errcode('COMMIT'), 'ZK001', "old primary: a transaction that relied on the $_ does not commit") foreach sort keys %open;
is($north->safe_psql('postgres', q{INSERT INTO work VALUES ('unguarded', 1) RETURNING n}), '1', 'old primary: what is not guarded does');
is($north->errcode(q{SELECT zk_lock_acquire('/z', '0')}), '08006', 'old primary: no new lock');
is($south->safe_psql('postgres', "BEGIN; " . sprintf($run, 'during') . q{; INSERT INTO job_runs VALUES ('during', 'south'); COMMIT}), 't',
	'new primary: the run that has failed is run again');
$south->wait_until($leads);
wait_for_rows('south', 'south', $isolated);
is($south->safe_psql('postgres', q{SELECT zk_lock_acquire('/x', '10 s'), zk_lock_acquire('/y', '10 s')}), 't|t', 'new primary: has the locks');
stop_writers();

do_not_interleave('north', 'south', $isolated);
cmp_ok(count_lost('north', 'south'), '>', 0, 'asynchronous: confirmed commits are lost');
is($south->safe_psql('postgres', q{SELECT count(*) FROM work WHERE server IN ('late', 'unguarded')}), '0', 'as is what was not guarded');
is($south->safe_psql('postgres', 'SELECT job, server FROM job_runs'), 'during|south', 'and the work of the job that was done');
is($south->safe_psql('postgres', $tick), 'f', 'which is not done again');

# --- the old primary comes back ---

# As long as the old primary takes itself for a primary, it stands; but behind the new one.
heal('north');
ok(wait_for_line($south, 'south* north'), 'back in the network, the old primary stands behind the new one');
is($north->safe_psql('postgres', $leads), 'f', 'and does not lead');
$_->quit foreach values %open;
$north->stop('fast');

$north->rewind($south);
follow('north');
$north->start;
$south->wait_for_catchup($north, 'replay', $south->lsn('write'));
$north->wait_until_connected;
ok(wait_for_line($south, 'south*'), 'as a standby, it does not stand for the leadership');
is($north->safe_psql('postgres', "$leads, pg_is_in_recovery()"), 'f|t', 'and does not lead');
is($north->safe_psql('postgres', q{SELECT count(*) FROM work WHERE server IN ('late', 'unguarded')}), '0', 'what only the old primary had is gone');

# --- synchronous replication ---

$south->set('synchronous_standby_names', 'north');
$south->wait_until(q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
my $before = now();
start_writers();
wait_for_rows('north', 'south', $before);

my $job = $south->backend;
$job->query('BEGIN; ' . sprintf($run, 'waits') . q{; INSERT INTO job_runs VALUES ('waits', 'south')});
$isolated = now();
isolate('south');
$job->send('COMMIT');
$south->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = } . $job->pid);
$south->wait_until("SELECT NOT zk_is_leader('$leader')");
ok(!$job->is_done, 'a commit after the cut waits for the standby, and is not confirmed');
$north->promote;
is($north->safe_psql('postgres', 'BEGIN; ' . sprintf($run, 'waits') . q{; INSERT INTO job_runs VALUES ('waits', 'north'); COMMIT}), 't',
	'so the job is run again on the new primary');
wait_for_rows('north', 'north', $isolated);
$south->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $job->pid . ')');
like($job->result->{err}, qr/already committed locally, but might not have been replicated/, 'and was not confirmed on the old one');
stop_writers();

do_not_interleave('south', 'north', $isolated);
is(count_lost('south', 'north'), '0', 'synchronous: no confirmed commit is lost');
is($north->safe_psql('postgres', 'SELECT job, server FROM job_runs ORDER BY job'), "during|south\nwaits|north", 'the work of the job is done once');

# --- a standby that is built anew ---

$south->stop('immediate');
heal('south');
$north->backup('for_south_again');
$south->clean_node;
$south = $node{south} = ZklockNode->new('again');
$south->init_from_backup($north, 'for_south_again');
follow('south');
$south->start;
$south->wait_until_connected;
ok(wait_for_line($north, 'north*'), 'a standby that was built anew does not stand either');
is($south->safe_psql('postgres', "$leads, pg_is_in_recovery()"), 'f|t', 'and does not lead');

$_->stop foreach $south, $north;
done_testing();
