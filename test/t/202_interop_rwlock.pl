
# The read-write lock together with services on Curator and kazoo: every pair of readers
# and writers, mixed queues, downgrades, writers that must not starve, ends of all kinds,
# paths that are a mutex for others, and load.

use strict;
use warnings;

use Contender;
use History;
use InteropPeer;
use ZklockTest qw(!token);

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 8);
my $victim = InteropPeer->curator($zk, session_timeout => 6);
my $kazoo = InteropPeer->kazoo($zk, session_timeout => 8);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);

# Each can be a reader and a writer: $a1->{read}, $a1->{write}.
sub zklock
{
	my ($node) = @_;
	my $backend = $node->backend;
	return { map { $_ => zklock_in($backend, $node, $_) } qw(read write) };
}

sub zklock_in
{
	my ($backend, $node, $mode) = @_;
	return Contender->zklock($backend, $node,
		acquire => sub { my ($path, $ms) = @_; return "SELECT zk_${mode}_lock_acquire('$path'" . (defined $ms ? ", '$ms ms')" : ')'); },
		release => sub { "SELECT zk_${mode}_lock_release('$_[0]')" });
}

sub foreign
{
	my ($actor, $suffix) = @_;
	return { map { $_ => Contender->foreign($actor, $_ . ($suffix // '')) } qw(read write) };
}

my ($a1, $a2, $b1) = map { zklock($_) } $node_a, $node_a, $node_b;
my ($c1, $c2, $c3, $c4) = map { foreign($curator->actor("c$_")) } 1 .. 4;
my ($k1, $k2) = map { foreign($kazoo->actor("k$_")) } 1 .. 2;
my $k3 = foreign($kazoo->actor('k3'), '_patterns');

# Queue, and wait until the wait has begun.  Readers wait for one of the writers before them, and
# clients differ in which.
my $writers = qr/__WRIT__|__lock__/;
sub queue { my ($path, $who, $mode) = @_; return $who->{$mode}->queue($zk, $path, $mode eq 'read' ? $writers : undef); }
sub queue_of { my ($path) = @_; return Contender::queue_of($zk, $path); }

# What the queue looks like: "WR" for a writer and then a reader.
sub shape { my ($path) = @_; return join '', map { /__WRIT__|__lock__/ ? 'W' : /__READ__|__rlock__/ ? 'R' : '?' } queue_of($path); }

sub wait_for_shape
{
	my ($path, $shape) = @_;
	my $is = '';
	eval { $zk->wait_until(sub { ($is = shape($path)) eq $shape }, "$path to be $shape") };
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($is, $shape, "$path: znodes");
}

# zklock answers before the znode of a try, or of a release, is gone.
sub wait_for_znodes { my ($path, $n) = @_; return $zk->wait_for_children("/zklock$path", $n); }

sub token { my ($who, $path) = @_; return $who->{read}->party->query("SELECT zk_lock_token('$path')"); }
sub is_held { my ($who, $path) = @_; return $who->{read}->party->query("SELECT zk_lock_is_held('$path')"); }

# All of these get the lock.
sub have_it
{
	my ($what, @contenders) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join(' ', map { $_->answer } @contenders), join(' ', map { 't' } @contenders), $what);
}

# None of these has the lock.
sub wait_on
{
	my ($what, @contenders) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(scalar(grep { $_->is_done } @contenders), 0, $what);
}

# --- every pair, both ways ---

my %peers = (
	'Curator' => $c1,
	q{kazoo with Curator's names} => $k1,
	'kazoo with extra_lock_patterns' => $k3);
foreach my $who (sort keys %peers)
{
	foreach my $is_ours_first (0, 1)
	{
		my ($first, $second) = $is_ours_first ? ($a1, $peers{$who}) : ($peers{$who}, $a1);
		my ($first_is, $second_is) = $is_ours_first ? ('zklock', $who) : ($who, 'zklock');

		foreach my $modes ([qw(read read)], [qw(read write)], [qw(write read)], [qw(write write)])
		{
			my ($held, $wanted) = @$modes;
			my $what = "$first_is ${held}s, $second_is wants to $wanted";
			my $path = '/pair_' . $what =~ s/\W+/_/gr;

			is($first->{$held}->acquire($path), 't', "$what: the first");
			if ("$held $wanted" eq 'read read')
			{
				is($second->{$wanted}->try($path), 't', "$what: may at once");
				$first->{$held}->release($path);
				wait_for_znodes($path, 1);
				is($b1->{write}->try($path), 'f', "$what: goes on when the first has ended");
				wait_for_znodes($path, 1);
				is($b1->{read}->try($path), 't', "$what: with others");
				$b1->{read}->release($path);
			}
			else
			{
				is($second->{$wanted}->try($path), 'f', "$what: a try");
				is($second->{$wanted}->acquire($path, 100), 'f', "$what: with a timeout");
				wait_for_znodes($path, 1);
				queue($path, $second, $wanted);
				wait_on("$what: it waits", $second->{$wanted});
				is($first->{$held}->release($path), 't', "$what: the first has ended");
				have_it("$what: it has it", $second->{$wanted});
			}
			$second->{$wanted}->release($path);
			wait_for_znodes($path, 0);
		}
	}
}

# In a transaction.
$a1->{read}->party->query(q{BEGIN; SELECT zk_xact_read_lock_acquire('/xact')});
is($c1->{read}->try('/xact'), 't', 'reading in a transaction: Curator may read');
$c1->{read}->release('/xact');
queue('/xact', $c1, 'write');
$a1->{read}->party->query('ROLLBACK');
have_it('at its end Curator may write', $c1->{write});
$c1->{write}->release('/xact');

# --- the order of a mixed queue ---

# Readers that stand together are let in together, and all other clients in turn.
#
# Readers of kazoo 2.8 and writers behind them wait for each other (issue 649 of kazoo), so
# no writer comes after those.  Curator does not see kazoo with patterns, so it does not
# come after that.
my %contenders = (a => $a1, b => $b1, c1 => $c1, c2 => $c2, c3 => $c3, c4 => $c4, k1 => $k1, k2 => $k2, k3 => $k3);

sub run_queue
{
	my ($path, @queue) = @_;
	my @batches;
	foreach (@queue)
	{
		my ($name, $mode) = split / /;
		my $one = { name => $_, who => $contenders{$name}, contender => $contenders{$name}{$mode}, mode => $mode };
		push @batches, [] if $mode eq 'write' || !@batches || $batches[-1][0]{mode} eq 'write';
		push @{ $batches[-1] }, $one;
	}

	my $holders = shift @batches;
	is($_->{contender}->acquire($path), 't', "$path: $_->{name} holds") foreach @$holders;
	foreach my $one (map { @$_ } @batches)
	{
		queue($path, $one->{who}, $one->{mode});
	}

	my $last_token = 0;
	while (1)
	{
		my @waiting = map { $_->{contender} } map { @$_ } @batches;
		my $names = join ', ', map { $_->{name} } @$holders;
		my @tokens = map { token($_->{who}, $path) } grep { $_->{contender}->node } @$holders;

		is(scalar(grep { $_ <= $last_token } @tokens), 0, "$path: $names: tokens grow") if @tokens;
		($last_token) = sort { $b <=> $a } $last_token, @tokens;
		foreach my $holder (@$holders)
		{
			wait_on("$path: $names: no waiter yet, when $holder->{name} ends", @waiting);
			$holder->{contender}->release($path);
		}
		$holders = shift @batches // last;
		have_it("$path: now " . join(', ', map { $_->{name} } @$holders), map { $_->{contender} } @$holders);
	}
	wait_for_znodes($path, 0);
	return;
}

run_queue('/queue1', 'c1 write', 'a read', 'c2 read', 'b write', 'c3 read', 'k1 write', 'c4 write', 'k2 read');
run_queue('/queue2', 'a read', 'c1 read', 'k1 write', 'b read', 'c2 read', 'c3 write', 'c4 read');
run_queue('/queue3', 'k1 write', 'c1 read', 'a write', 'c2 read', 'b read', 'c3 read', 'c4 write');
run_queue('/queue4', 'a write', 'b write', 'c1 write', 'c2 read', 'k1 write');
run_queue('/queue5', 'c1 read', 'k3 write', 'a read', 'b read');
run_queue('/queue6', 'c1 write', 'a write', 'k3 read', 'b read');

# --- zklock goes on reading ---

# A writer that waits is not let in between.
foreach my $who ('Curator', q{kazoo with Curator's names}, 'kazoo with extra_lock_patterns')
{
	my $path = '/down_' . $who =~ s/\W+/_/gr;
	my $other = $peers{$who};

	$a1->{write}->acquire($path);
	my ($writer) = queue_of($path);
	my $token = token($a1, $path);
	queue($path, $other, 'write');
	queue($path, $b1, 'write');
	is($a1->{read}->acquire($path), 't', "$who waits: a writer may read");
	is($a1->{write}->release($path), 't', "$who waits: and stops writing");
	wait_for_shape($path, 'RWW');
	my ($reader) = queue_of($path);
	is($reader, $writer =~ s/__WRIT__/__READ__/r, "$who waits: the reader has the writer's place");
	$other->{write}->wait_until_watching($zk, $reader);
	wait_on("$who waits: until the reader ends", $other->{write}, $b1->{write});
	is(token($a1, $path), $token, "$who waits: the token stays");
	$a1->{read}->release($path);
	have_it("$who waits: the reader has ended", $other->{write});
	wait_on("$who waits: the other server waits on", $b1->{write});
	$other->{write}->release($path);
	have_it("$who waits: and then has it", $b1->{write});
	ok(token($b1, $path) > $token, "$who waits: with a greater token");
	$b1->{write}->release($path);
	wait_for_znodes($path, 0);
}

# Readers that wait are let in, up to the next writer.
foreach my $who ('Curator', q{kazoo with Curator's names}, 'kazoo with extra_lock_patterns')
{
	my $path = '/down_reader_' . $who =~ s/\W+/_/gr;
	$a1->{write}->acquire($path);
	queue($path, $peers{$who}, 'read');
	$a1->{read}->acquire($path);
	$a1->{write}->release($path);
	have_it("$who wants to read: let in", $peers{$who}{read});
	is(is_held($a1, $path), 't', "$who wants to read: and zklock reads on");
	is($b1->{write}->try($path), 'f', "$who wants to read: no other may write");
	$_->{read}->release($path) foreach $a1, $peers{$who};
	wait_for_znodes($path, 0);
}

$a1->{write}->acquire('/down_mixed');
queue('/down_mixed', $c1, 'read');
queue('/down_mixed', $b1, 'read');
queue('/down_mixed', $c2, 'write');
queue('/down_mixed', $c3, 'read');
$a1->{read}->acquire('/down_mixed');
wait_on('still writing: all wait', $c1->{read}, $b1->{read}, $c2->{write}, $c3->{read});
$a1->{write}->release('/down_mixed');
have_it('the first readers are let in', $c1->{read}, $b1->{read});
$a1->{read}->release('/down_mixed');
$c1->{read}->release('/down_mixed');
wait_for_shape('/down_mixed', 'RWR');
wait_on('the writer waits for all of them, and the reader behind it for the writer', $c2->{write}, $c3->{read});
$b1->{read}->release('/down_mixed');
have_it('then it may write', $c2->{write});
wait_on('alone', $c3->{read});
$c2->{write}->release('/down_mixed');
have_it('then the last', $c3->{read});
$c3->{read}->release('/down_mixed');

# The same without a request by any client: another reader of the server has the writer's ticket.
$node_a->set('zklock.tenure', '1min');
foreach my $is_queued (0, 1)
{
	my $path = "/down_auto$is_queued";
	$a1->{write}->acquire($path);
	$a2->{read}->send_acquire($path);
	$node_a->wait_for_waiter($path, 1);
	if ($is_queued)
	{
		queue($path, $c1, 'read');
		$node_a->wait_until_contended($path);
	}
	$a1->{write}->release($path);
	have_it('a reader of the same server', $a2->{read});
	$c1->{read}->send_acquire($path) unless $is_queued;
	have_it('and one of Curator, which ' . ($is_queued ? 'waited' : 'came later'), $c1->{read});
	wait_for_shape($path, 'RR');
	is(is_held($a2, $path), 't', 'together');
	queue($path, $c2, 'write');
	$_->{read}->release($path) foreach $a2, $c1;
	have_it('then a writer', $c2->{write});
	$c2->{write}->release($path);
	wait_for_znodes($path, 0);
}

$a1->{write}->acquire('/down_auto2');
$a2->{read}->send_acquire('/down_auto2');
$node_a->wait_for_waiter('/down_auto2', 1);
queue('/down_auto2', $c1, 'write');
$node_a->wait_until_contended('/down_auto2');
$a1->{write}->release('/down_auto2');
have_it('a reader of the same server, within the tenure', $a2->{read});
wait_for_shape('/down_auto2', 'RW');
$c1->{write}->wait_until_watching($zk, (queue_of('/down_auto2'))[0]);
wait_on('a writer of Curator waits', $c1->{write});
$a2->{read}->release('/down_auto2');
have_it('until it has ended', $c1->{write});
$c1->{write}->release('/down_auto2');
$node_a->set('zklock.tenure', '0');

# --- Curator goes on reading ---

# Before Curator 5.5 (CURATOR-621), the znode of its reader queues behind all waiters, so that a
# writer gets the lock beside it.  zklock cannot know better than the znodes do.
my $version = $curator->version;
$c1->{write}->acquire('/theirs');
queue('/theirs', $b1, 'write');
is($c1->{read}->try('/theirs'), 't', "Curator $version: a writer may read");
if ($version < v5.5)
{
	wait_for_shape('/theirs', 'WWR');
	wait_on("Curator $version: zklock waits", $b1->{write});
	$c1->{write}->release('/theirs');
	have_it("Curator $version: zklock is the first now", $b1->{write});
	is($c1->{read}->party->query('held read /zklock/theirs'), 't', "Curator $version: although that reads");
	queue('/theirs', $a1, 'read');
	$c1->{read}->release('/theirs');
	wait_for_shape('/theirs', 'WR');
	wait_on("Curator $version: zklock does not let others in", $a1->{read});
	$b1->{write}->release('/theirs');
	have_it("Curator $version: before it has ended", $a1->{read});
	$a1->{read}->release('/theirs');
}
else
{
	wait_for_znodes('/theirs', 3);
	wait_on("Curator $version: zklock waits", $b1->{write});
	$c1->{write}->release('/theirs');
	wait_for_shape('/theirs', 'RW');
	wait_on("Curator $version: zklock still waits", $b1->{write});
	$c1->{read}->release('/theirs');
	have_it("Curator $version: until it ends to read", $b1->{write});
	$b1->{write}->release('/theirs');
}
wait_for_znodes('/theirs', 0);

# If no client waited before Curator's reader came, the downgrade is right.
$c1->{write}->acquire('/theirs2');
is($c1->{read}->try('/theirs2'), 't', 'Curator: reads, too');
queue('/theirs2', $a1, 'read');
queue('/theirs2', $b1, 'write');
$c1->{write}->release('/theirs2');
have_it('Curator: stops writing, and zklock may read', $a1->{read});
$a1->{read}->release('/theirs2');
wait_for_shape('/theirs2', 'RW');
wait_on('Curator: and not write', $b1->{write});
$c1->{read}->release('/theirs2');
have_it('Curator: until it stops reading', $b1->{write});
$b1->{write}->release('/theirs2');

# --- a writer that waits does not starve ---

# Without a tenure, no client's later reader is let in, not even one of the server itself.
foreach my $writer ($c1, $b1)
{
	my $who = $writer == $b1 ? 'zklock' : 'Curator';
	my $path = "/starve_$who";

	$a1->{read}->acquire($path);
	$c4->{read}->acquire($path);
	queue($path, $writer, 'write');
	$node_a->wait_until_contended($path);

	is($a2->{read}->try($path), 'f', "a writer of $who waits: a try of the reading server");
	is($a2->{read}->acquire($path, 100), 'f', "a writer of $who waits: the same with a timeout");
	is($c2->{read}->try($path), 'f', "a writer of $who waits: a try of Curator");
	is($k1->{read}->try($path), 'f', "a writer of $who waits: a try of kazoo");
	is($a1->{read}->acquire($path), 't', "a writer of $who waits: a reader may read again");
	wait_for_shape($path, 'RRW');

	$a2->{read}->send_acquire($path);
	$node_a->wait_for_waiter($path, 1);
	queue($path, $c2, 'read');
	queue($path, $c3, 'read');
	my @late = map { $_->{read} } $a2, $c2, $c3;
	$a1->{read}->release($path);
	$c4->{read}->release($path);
	wait_on("a writer of $who waits: for the last reader", $writer->{write}, @late);
	$a1->{read}->release($path);
	have_it("a writer of $who is next", $writer->{write});

	# The other reader of server a has a znode of its own now, at the end.
	wait_for_shape($path, 'WRRR');
	wait_on("a writer of $who writes: the readers wait", @late);
	$writer->{write}->release($path);
	have_it("a writer of $who has ended: all readers", @late);
	$_->release($path) foreach @late;
	wait_for_znodes($path, 0);
}

# With the default tenure, readers of the server are let in until it is over.
$node_a->set('zklock.tenure', '100ms');
foreach my $writer ($c1, $b1)
{
	my $who = $writer == $b1 ? 'zklock' : 'Curator';
	my $path = "/starve_tenure_$who";

	$a1->{read}->acquire($path);
	queue($path, $writer, 'write');
	$node_a->wait_until_contended($path);
	$zk->wait_until(
		sub {
			my $is_in = $a2->{read}->try($path) eq 't';
			$a2->{read}->release($path) if $is_in;
			return !$is_in;
		},
		'the end of the tenure');
	is($a2->{read}->try($path), 'f', "a writer of $who waits: none is let in any more");
	$a2->{read}->send_acquire($path);
	$node_a->wait_for_waiter($path, 1);
	$a1->{read}->release($path);
	have_it("a writer of $who is next, with a tenure, too", $writer->{write});
	wait_for_shape($path, 'WR');
	wait_on("a writer of $who writes: the reader waits", $a2->{read});
	$writer->{write}->release($path);
	have_it("a writer of $who has ended", $a2->{read});
	$a2->{read}->release($path);
	wait_for_znodes($path, 0);
}

# Readers without a gap: each releases only when the other has come, or has to wait.
foreach my $who ('zklock', 'Curator')
{
	my $path = "/relay_$who";
	my ($one, $two) = map { $_->{read} } $who eq 'zklock' ? ($a1, $a2) : ($c2, $c3);
	my $is_refused = 0;
	my $writer = $who eq 'zklock' ? $c1 : $b1;

	$one->acquire($path);
	queue($path, $writer, 'write');
	$zk->wait_until(
		sub {
			$is_refused = $two->try($path) eq 'f';
			$one->release($path);
			($one, $two) = ($two, $one) unless $is_refused;
			return $is_refused;
		},
		"readers of $who to be refused");
	have_it("a relay of readers of $who ends", $writer->{write});
	is($one->try($path), 'f', "a relay of readers of $who has ended");
	$writer->{write}->release($path);
	wait_for_znodes($path, 0);
}
$node_a->set('zklock.tenure', '0');

# --- a client leaves the queue ---

# A reader holds, a writer and then a reader queue; the writer gives up.
foreach (
	[ 'Curator', $c2, 'InterruptedException' ],
	[ 'kazoo', $k1, 'CancelledError' ],
	[ 'zklock', $b1, '57014' ])
{
	my ($who, $writer, $error) = @$_;
	my @readers = $who eq 'zklock' ? ($c1, $a1) : ($a1, $b1);
	foreach my $holder (@readers)
	{
		my ($reader) = grep { $_ != $holder } @readers;
		my $path = "/leave_$who" . ($holder == $readers[0]);
		$holder->{read}->acquire($path);
		queue($path, $writer, 'write');
		queue($path, $reader, 'read');
		wait_on("a writer of $who waits, and a reader behind it", $writer->{write}, $reader->{read});
		if ($who eq 'zklock')
		{
			$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $writer->{write}->party->pid . ')');
		}
		else
		{
			$writer->{write}->party->cancel;
		}
		is($writer->{write}->result->{errcode}, $error, "a writer of $who is cancelled");
		have_it("a writer of $who is cancelled: the reader is let in", $reader->{read});
		is($c4->{write}->try($path), 'f', "a writer of $who is cancelled: two read");
		$_->{read}->release($path) foreach $holder, $reader;
		wait_for_znodes($path, 0);
	}
}

# The reader that waits gives up, and a timeout of the writer lets others in.
$c1->{write}->acquire('/leave');
queue('/leave', $a1, 'read');
queue('/leave', $c2, 'write');
$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $a1->{read}->party->pid . ')');
is($a1->{read}->result->{errcode}, '57014', 'a reader of zklock is cancelled');
wait_for_shape('/leave', 'WW');
$c2->{write}->wait_until_watching($zk, (queue_of('/leave'))[0]);
wait_on('a reader of zklock is cancelled: the client behind it waits on', $c2->{write});
queue('/leave', $c3, 'read');
queue('/leave', $b1, 'write');
$c3->{read}->party->cancel;
is($c3->{read}->result->{errcode}, 'InterruptedException', 'a reader of Curator is cancelled');
wait_for_shape('/leave', 'WWW');
$b1->{write}->wait_until_watching($zk, (queue_of('/leave'))[1]);
$c1->{write}->release('/leave');
have_it('the next writer', $c2->{write});
wait_on('the one behind waits', $b1->{write});
$c2->{write}->release('/leave');
have_it('then that', $b1->{write});
$b1->{write}->release('/leave');

$c1->{read}->acquire('/leave2');
$a1->{write}->send_acquire('/leave2', 5000);
wait_for_shape('/leave2', 'RW');
queue('/leave2', $c2, 'read');
is($a1->{write}->answer, 'f', 'the timeout of a writer passes');
have_it('so a reader of Curator is let in', $c2->{read});
$_->{read}->release('/leave2') foreach $c1, $c2;

# --- a holder or a waiter ends ---

# A backend ends: one that writes, one that waits to write, one of two that read.
$a2->{write}->acquire('/end1');
queue('/end1', $c1, 'read');
queue('/end1', $b1, 'read');
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a2->{write}->party->pid . ')');
have_it('the writing backend is terminated: readers', $c1->{read}, $b1->{read});
$a2 = zklock($node_a);
queue('/end1', $a2, 'write');
queue('/end1', $c2, 'read');
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a2->{write}->party->pid . ')');
have_it('the waiting backend is terminated: the reader behind it', $c2->{read});
$_->{read}->release('/end1') foreach $b1, $c1, $c2;
wait_for_znodes('/end1', 0);

$a2 = zklock($node_a);
$_->{read}->acquire('/end2') foreach $a1, $a2;
queue('/end2', $c1, 'write');
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a2->{read}->party->pid . ')');
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/end2'});
wait_on('one of two reading backends is terminated: the other reads on', $c1->{write});
is(shape('/end2'), 'RW', 'one of two reading backends is terminated: with the same znode');
$a1->{read}->release('/end2');
have_it('the other ends, too', $c1->{write});
$c1->{write}->release('/end2');
$a2 = zklock($node_a);

# A service is killed while it reads and waits to write; another one while it writes.
my ($v1, $v2, $v3) = map { foreign($victim->actor("v$_")) } 1 .. 3;
my @sessions = map { $_->{read}->party->session } $v1, $v2, $v3;
$v1->{read}->acquire('/kill1');
$a1->{read}->acquire('/kill1');
queue('/kill1', $v2, 'write');
queue('/kill1', $b1, 'read');
queue('/kill1', $c1, 'read');
$v3->{write}->acquire('/kill2');
queue('/kill2', $a2, 'write');
queue('/kill2', $c2, 'read');
$victim->kill9;
have_it('the waiting writer is killed: the readers behind it may read', $b1->{read}, $c1->{read});
have_it('the writer is killed: zklock may write', $a2->{write});
# (Each client has a session of its own.  The test has not waited for the end of the reader's session.)
is(scalar(grep { $zk->has_session($_) } @sessions[ 1, 2 ]), 0, 'when its session had expired');
wait_on('Curator waits for zklock', $c2->{read});
$a2->{write}->release('/kill2');
have_it('and then has it', $c2->{read});
$c2->{read}->release('/kill2');
$_->{read}->release('/kill1') foreach $a1, $b1, $c1;
wait_for_znodes('/kill1', 0);

# The session of a server expires; the server reads one lock and writes another.
$node_b->set_session_timeout($zk, '8s');
$b1->{read}->acquire('/end3');
$b1->{write}->acquire('/end4');
queue('/end3', $c1, 'write');
queue('/end4', $c2, 'read');
queue('/end4', $a1, 'read');
$node_b->expire_session($zk);
have_it('the session expires: Curator may write, and read', $c1->{write}, $c2->{read});
have_it('the session expires: the other server may read', $a1->{read});
foreach my $path ('/end3', '/end4')
{
	is(is_held($b1, $path), 'f', 'the session expires: zklock knows it');
	is($b1->{read}->party->errcode("SELECT zk_lock_token('$path')"), 'ZK001', 'the session expires: an error');
}
$b1->{read}->release('/end3');
$b1->{write}->release('/end4');
is($a2->{write}->try('/end4'), 'f', 'a release of what was lost frees nothing');
$c1->{write}->release('/end3');
$_->{read}->release('/end4') foreach $c2, $a1;

# A server is killed.
$b1->{write}->acquire('/end5');
queue('/end5', $c1, 'write');
my $session = $node_b->status('session_id');
$node_b->kill9_all;
have_it('the server is killed: Curator may write', $c1->{write});
ok(!$zk->has_session($session), 'the server is killed: after its session had expired');
$node_b->configure('zklock.session_timeout' => '30s');
$node_b->start;
$node_b->wait_until_connected;
$b1 = zklock($node_b);
is($b1->{read}->try('/end5'), 'f', 'the server is back: Curator writes');
queue('/end5', $b1, 'read');
$c1->{write}->release('/end5');
have_it('the server is back: and may read then', $b1->{read});
$b1->{read}->release('/end5');

# --- another kind of lock ---

foreach my $mode ('read', 'write')
{
	my $path = "/kind_$mode";
	$c1->{$mode}->acquire($path);
	foreach my $arguments ("'$path'", "'$path', '0'", "'$path', '1min'")
	{
		is($a1->{read}->party->errcode("SELECT zk_lock_acquire($arguments)"), 'ZK003', "Curator ${mode}s: no mutex of $arguments");
	}
	wait_for_znodes($path, 1);
	$c1->{$mode}->release($path);
	is($a1->{read}->party->query("SELECT zk_lock_acquire('$path')"), 't', "Curator ${mode}s no more: a mutex");
	foreach my $wanted ('read', 'write')
	{
		is($b1->{$wanted}->party->errcode("SELECT zk_${wanted}_lock_acquire('$path')"), 'ZK003', "a mutex of zklock: no lock to $wanted");
	}
	$a1->{read}->party->query("SELECT zk_lock_release('$path')");
	wait_for_znodes($path, 0);

	my $mutex = Contender->foreign($curator->actor('c2'), 'mutex');
	$mutex->acquire($path);
	foreach my $wanted ('read', 'write')
	{
		foreach my $arguments ("'$path'", "'$path', '0'", "'$path', '1min'")
		{
			is($a1->{$wanted}->party->errcode("SELECT zk_${wanted}_lock_acquire($arguments)"), 'ZK003', "a mutex of Curator: no lock to $wanted: $arguments");
		}
	}
	wait_for_znodes($path, 1);
	$mutex->release($path);

	# Curator itself does not look, and so both have something on the path.  zklock tells every
	# later client.
	is($a1->{$mode}->acquire($path), 't', "no mutex any more: zklock ${mode}s");
	is($mutex->try($path), 't', "zklock ${mode}s: Curator sees nothing, and has a mutex");
	is($b1->{read}->party->errcode("SELECT zk_read_lock_acquire('$path')"), 'ZK003', "zklock ${mode}s, and Curator has a mutex: an error");
	is(is_held($a1, $path), 't', "zklock ${mode}s, and Curator has a mutex: zklock holds on");
	$mutex->release($path);
	$a1->{$mode}->release($path);
	wait_for_znodes($path, 0);
}

# The queue: a waiting mutex of Curator does not disturb readers and writers.
$a1->{write}->acquire('/kind');
is($a1->{read}->party->errcode(q{SELECT zk_lock_acquire('/kind')}), 'ZK003', 'zklock writes: no mutex, not for itself');
queue('/kind', $c1, 'write');
is($b1->{write}->party->errcode(q{SELECT zk_lock_acquire('/kind')}), 'ZK003', 'zklock writes and Curator waits: no mutex');
$a1->{write}->release('/kind');
have_it('zklock has written: Curator has it', $c1->{write});
$c1->{write}->release('/kind');
wait_for_znodes('/kind', 0);

# --- strange znodes in the directory ---

my $uuid = '1b4e28ba-2fa1-41d2-883f-0016d3cca427';
my $hex = '8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c';
my $junk = 0;

# t, f, or how it was refused
sub try_or_error
{
	my ($contender, $mode, $path) = @_;
	return $contender->try($path) if $contender->party != $a1->{$mode}->party;
	my $result = $contender->party->run("SELECT zk_${mode}_lock_acquire('$path', '0')");
	return $result->{errcode} || $result->{out};
}

foreach (
	#  child						to read: zklock Curator	to write: zklock Curator
	[ 'abc',								qw(t t		t t) ],
	[ '1.5',								qw(t t		t t) ],
	[ '0',									qw(t t		t f) ],
	[ '-x',									qw(t t		t f) ],
	[ "_c_$uuid-latch-0000000000",			qw(ZK003 t	ZK003 t) ],
	[ "_c_$uuid-__WRIT__0000000000",		qw(f f		f f) ],
	[ "_c_$uuid-__READ__0000000000",		qw(t t		f f) ],
	[ "x__WRIT__0000000000",				qw(f f		f f) ],
	[ "x__READ__0000000000",				qw(t t		f f) ],
	[ "_c_$uuid-__WRIT__0000000009",		qw(t t		t t) ],
	[ "_c_$uuid-__READ__0000000009",		qw(t t		t t) ],
	[ "${hex}__lock__0000000000",			qw(f t		f t) ],
	[ "${hex}__rlock__0000000000",			qw(t t		f t) ],
	# a counter that has run over, as strings are compared
	[ "_c_$uuid-__WRIT__2147483647",		qw(t t		t t) ],
	[ "_c_$uuid-__WRIT__-2147483648",		qw(f f		f f) ],
	[ "_c_$uuid-__READ__-2147483648",		qw(t t		f f) ])
{
	my ($child, $our_read, $their_read, $our_write, $their_write) = @$_;
	my $path = '/junk' . ++$junk;
	$zk->create("/zklock$path/$child");
	foreach (
		[ zklock => $a1, $c1, read => $our_read ], [ Curator => $c1, $a1, read => $their_read ],
		[ zklock => $a1, $c1, write => $our_write ], [ Curator => $c1, $a1, write => $their_write ])
	{
		my ($who, $contender, $rival, $mode, $expected) = @$_;
		my $got = try_or_error($contender->{$mode}, $mode, $path);
		is($got, $expected, "beside $child: $who wants to $mode");
		wait_for_znodes($path, $got eq 't' ? 2 : 1);
		next if $got ne 't';
		is(try_or_error($rival->{write}, 'write', $path), $who eq 'Curator' && $our_write eq 'ZK003' ? 'ZK003' : 'f', "beside $child: $who ${mode}s, and no other writes");
		$contender->{$mode}->release($path);
		wait_for_znodes($path, 1);
	}
	is_deeply(wait_for_znodes($path, 1), [$child], "beside $child: left alone");
}

# --- load ---

my %hammers;
my %kind = (a => 'zklock', b => 'zklock', c => 'Curator', k => 'kazoo');
sub kind_of { my ($who) = @_; return $kind{ substr $who, 0, 1 }; }

# Two backends of each server and two threads of two sessions of Curator, which read in the given
# percentage of their rounds, and writers of kazoo.
sub load
{
	my ($what, $path, $reads, $rounds, @kazoo) = @_;
	my $history = History->new;
	my @kinds = ('zklock', 'Curator', @kazoo ? 'kazoo' : ());

	foreach my $node ($node_a, $node_a, $node_b, $node_b)
	{
		$history->hammer_mix($node, $node->name . ++$hammers{ $node->name },
			sub {
				my $mode = rand(100) < $reads ? 'read' : 'write';
				return ("SELECT zk_${mode}_lock_acquire('$path')", "SELECT zk_${mode}_lock_release('$path')", $mode eq 'read' ? 's' : 'x');
			},
			hold_us => 1000);
	}
	$history->hammer($curator->actor($_), "rw=$reads", "/zklock$path", hold_us => 1000) foreach 'c1.h1', 'c1.h2', 'c2.h1', 'c2.h2';
	$history->hammer($kazoo->actor($_), 'write', "/zklock$path") foreach @kazoo;
	$history->work_until(
		sub {
			my %has_written = map { kind_of($_->{who}) => 1 } grep { ($_->{mode} // '') eq 'x' } $history->records;
			return $history->each_has($rounds) && $history->most_at_a_time > 1
			  && keys %has_written == @kinds && $history->has_handovers(\&kind_of, @kinds);
		},
		"load $what");

	my @problems = $history->problems;
	is(scalar(@problems), 0, "load $what: no client overlapped a writer, and the counter is exact")
	  or diag join "\n", splice @problems, 0, 10;
	note "load $what: " . $history->summary . '; wrote: ' . grep({ $_->{mode} eq 'x' } $history->records)
	  . '; readers at a time: ' . $history->most_at_a_time;
	wait_for_znodes($path, 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	return;
}

load('of few writers, without tenure', '/load1', 95, 60);
load('of as many writers, without tenure', '/load2', 50, 40, 'k1.h', 'k2.h');
foreach my $node ($node_a, $node_b)
{
	$node->set('zklock.tenure', '100ms');
	$node->set('zklock.linger', '1s');
}
load('of few writers, with the defaults', '/load3', 95, 60, 'k1.h');
load('of as many writers, with the defaults', '/load4', 50, 40, 'k1.h', 'k2.h');

# --- the end ---

foreach my $node ($node_a, $node_b)
{
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), '0', $node->name . ': no entry is left');
}
$_->{read}->party->quit foreach $a1, $a2, $b1;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{^/zklock/(?!junk).*(__|lock-)} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
