
# The recipe about what the last holder of a lock wrote: without it, the next holder on a replica
# reads what was there before; with each of its ways it does not.  A hot standby, and a subscriber of
# logical replication.

use strict;
use warnings;

use FindBin;
use ZklockTest;

my $zk = ZooKeeper->new;
my $primary = ZklockNode->started('primary', $zk, init => [ allows_streaming => 'logical' ]);

# The procedures, and the call that acquires on a replica, as they are printed.
my ($section) = slurp_file("$FindBin::Bin/../../doc/recipes.md") =~ /^## What the last holder wrote, on a replica\n(.*?)^## /ms;
my @procedures = $section =~ /^```text\n(CREATE \w+ wait_for_.*?)^```/msg;
is(scalar(@procedures), 2, 'the page has two procedures');
my ($acquire) = $section =~ /^(\w+ zk_lock_\w+\('\/jobs\/report'\));/m;
$acquire =~ s{/jobs}{};
$primary->safe_psql('postgres', "CREATE TABLE report (id int PRIMARY KEY, v int); INSERT INTO report VALUES (1, 0); @procedures");
my $standby = ZklockNode->standby('standby', $primary);
my $subscriber = ZklockNode->started('subscriber', $zk, 'zklock.node_name' => 'subscriber');
$primary->safe_psql('postgres', 'CREATE PUBLICATION news FOR TABLE report');
$subscriber->safe_psql('postgres', 'CREATE TABLE report (id int PRIMARY KEY, v int)');
$subscriber->safe_psql('postgres', q{CREATE SUBSCRIPTION news CONNECTION '} . $primary->connstr . q{ dbname=postgres' PUBLICATION news});
$subscriber->wait_until(q{SELECT count(*) = 1 FROM report});
$primary->wait_until(q{SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'news' AND state = 'streaming'});

# Each replica, with what holds up what it replays, and what waits for it.
my $blocker = $subscriber->backend;
my $asked = $primary->backend;
my %replicas = (
	standby => {
		node => $standby,
		hold => sub { $standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()'); $standby->wait_until(q{SELECT pg_get_wal_replay_pause_state() = 'paused'}); },
		let_go => sub { $standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()'); },
		wait => sub { my ($backend, $lsn, $timeout) = @_; return $backend->errcode("CALL wait_for_replay('$lsn', '$timeout')"); },
	},
	news => {
		node => $subscriber,
		hold => sub { $blocker->query('BEGIN; LOCK report IN SHARE MODE'); },
		let_go => sub { $blocker->query('COMMIT'); },
		wait => sub { my ($backend, $lsn, $timeout) = @_; return $asked->errcode("CALL wait_for_subscriber('news', '$lsn', '$timeout')"); },
	});

my $holder = $primary->backend;
my $value = 0;
foreach my $name (sort keys %replicas)
{
	my ($node, $hold, $let_go, $wait) = @{ $replicas{$name} }{qw(node hold let_go wait)};
	my $next = $node->backend;
	my $read = q{SELECT v FROM report WHERE id = 1};

	# The accident.
	my $old = $value++;
	$hold->();
	$holder->query($_) foreach q{SELECT zk_lock_acquire('/report')}, "UPDATE report SET v = $value", q{SELECT zk_lock_release('/report')};
	is($next->query(q{SELECT zk_lock_acquire('/report', '1min')}), 't', "$name: the next holder");
	is($next->query($read), $old, "$name: reads what was there before");

	# The next holder waits.
	my $lsn = $asked->query('SELECT pg_current_wal_insert_lsn()');
	is($wait->($next, $lsn, '100 ms'), '55P03', "$name: the wait is bounded");
	$let_go->();
	is($wait->($next, $lsn, '3 min'), '', "$name: and ends when that is replayed");
	is($next->query($read), $value, "$name: then the next holder reads what the last one wrote");
	$next->query(q{SELECT zk_lock_release('/report')});

	# The holder waits.
	$primary->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$primary->reload;
	$primary->wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = '$name' AND sync_state = 'sync'");
	$value++;
	$hold->();
	my $hangs;
	foreach (1 .. 100)					# commits wait when the checkpointer, too, has read the setting
	{
		$holder->query($_) foreach 'BEGIN', 'SET LOCAL synchronous_commit = remote_apply', q{SELECT zk_xact_lock_acquire('/report')}, "UPDATE report SET v = $value";
		$holder->send('COMMIT');
		$zk->wait_until(sub {
			$hangs = $asked->query(q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = } . $holder->pid) eq 't';
			return $hangs || $holder->is_done;
		}, 'the commit to wait');
		last if $hangs;
		$holder->answer;
	}
	ok($hangs, "$name: the commit waits");
	is($next->query(q{SELECT zk_lock_acquire('/report', '100 ms')}), 'f', "$name: the lock is not free before that is replayed");
	$next->send($acquire);
	$let_go->();
	$holder->result;
	is($next->result->{errcode}, '', "$name: then it is");
	is($next->query($read), $value, "$name: and the next holder reads what the last one wrote");
	$next->query(q{SELECT zk_lock_release('/report')});
	$primary->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$primary->reload;
	$asked->wait_until(q{SELECT current_setting('synchronous_standby_names') = ''});
	$next->quit;
}

# --- rows die on the primary while a session waits on the standby ---

# The replay of their removal must not wait for that session, which waits for the holder, whose commit
# waits for the replay.
sub vacuum { return $asked->run('VACUUM (VERBOSE, TRUNCATE off) report')->{err} =~ /\b0 are dead but not yet removable/; }

$standby->configure('wal_receiver_status_interval' => '1s');
$primary->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'standby'});
$primary->reload;
$primary->wait_until(q{SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'standby' AND sync_state = 'sync'});
foreach my $feedback ('off', 'on')
{
	foreach my $delay ('-1', '2s')
	{
		my $what = "hot_standby_feedback $feedback, max_standby_streaming_delay $delay";
		$standby->set('hot_standby_feedback', $feedback);
		$standby->set('max_standby_streaming_delay', $delay);
		my $next = $standby->backend;
		$value++;
		$holder->query($_) foreach q{SET statement_timeout = '1min'}, 'SET synchronous_commit = remote_apply', q{SELECT zk_lock_acquire('/report')};
		$next->send($acquire);
		$primary->wait_until(q{SELECT count(*) = 2 FROM zk_lock_queue('/report')});
		$standby->wait_until('SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = ' . $next->pid);

		# With feedback, the primary hears of the standby's snapshots once a second.
		$holder->query("UPDATE report SET v = $value");
		$zk->wait_until(\&vacuum, 'VACUUM to remove what is dead');
		is($holder->errcode('UPDATE report SET v = v'), '', "$what: the holder commits, and the standby shows it");
		is($holder->run('SHOW statement_timeout')->{err}, '', "$what: without a WARNING");
		$holder->query(q{SELECT zk_lock_release('/report')});
		is($next->result->{errcode}, '', "$what: the next holder was not cancelled");
		is($next->query('SELECT v FROM report WHERE id = 1'), $value, "$what: and reads what the last one wrote");
		my $lsn = $asked->query('SELECT pg_current_wal_insert_lsn()');
		is($next->errcode("CALL wait_for_replay('$lsn', '1min')"), '', "$what: it may also wait for the replay");
		$next->query(q{SELECT zk_lock_release('/report')});
		$next->quit;
	}
}

# The wait for the replay does not hold it up.
$standby->set('max_standby_streaming_delay', '-1');
$standby->set('hot_standby_feedback', 'off');
$holder->query('SET synchronous_commit = local');
my $next = $standby->backend;
my $far_away = $asked->query(q{SELECT pg_current_wal_insert_lsn() + 10000000});
$next->send("CALL wait_for_replay('$far_away', '3min')");
foreach my $round (1 .. 20)
{
	$holder->query('UPDATE report SET v = v + 1');
	$zk->wait_until(\&vacuum, 'VACUUM to remove what is dead');
}
$primary->wait_for_catchup($standby, 'replay');
pass('the replay goes on while a session waits for it');
$asked->wait_until(qq{SELECT pg_logical_emit_message(false, 'zklock', repeat('x', 100000)) > '$far_away'});
is($next->result->{errcode}, '', 'which it does until then');
$next->quit;
$primary->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
$primary->reload;

$_->quit foreach $holder, $asked, $blocker;
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION news');
$_->stop foreach $standby, $subscriber, $primary;
done_testing();
