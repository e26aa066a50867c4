
# A transaction that uses a claim holds its lock, and a session in zk_claim_wait waits for one.  Both can
# be part of a deadlock, within a server and between servers.  If the victim tries again, all go on.

use strict;
use warnings;

use ZklockTest qw(!release);

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '60s', 'zklock.linger' => 0, 'zklock.tenure' => 0, 'deadlock_timeout' => '150ms');
my %node = map { $_ => ZklockNode->started($_, $zk, %settings) } qw(north south);
$_->safe_psql('postgres', 'CREATE TABLE accounts AS SELECT generate_series(1, 9) AS id, 0 AS n') foreach values %node;
my %backend = (
	(map { ("n$_" => $node{north}->backend) } 1 .. 3),
	(map { ("s$_" => $node{south}->backend) } 1 .. 2));
my %watch = map { substr($_, 0, 1) => $node{$_}->backend } keys %node;
my %claim;

# Without a deadlock check, the end of this lease time ends the waits, with another error.
sub request { my ($path, $server) = @_; return $claim{$path} = $watch{ $server // 'n' }->query("SELECT zk_claim_request('$path', '40 s')"); }
sub granted { my ($path, $server) = @_; request(@_); is($watch{ $server // 'n' }->query("SELECT zk_claim_wait('$claim{$path}', '1 min')"), 't', "claim on $path"); return; }
sub release { my ($path, $server) = @_; return $watch{ $server // 'n' }->query("SELECT zk_claim_release('$claim{$path}')"); }

sub uses { my ($path) = @_; return "SELECT zk_xact_claim_use('$claim{$path}')"; }
sub mutex { my ($path) = @_; return "SELECT zk_xact_lock_acquire('$path')"; }
sub row { my ($id) = @_; return "UPDATE accounts SET n = n + 1 WHERE id = $id"; }

# Until the backend waits for a lock of PostgreSQL's, for its server's ticket, or for a claim.
sub wait_until_waiting
{
	my ($name) = @_;
	my $pid = $backend{$name}->pid;
	return $watch{ substr($name, 0, 1) }->wait_until(
		"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $pid AND NOT granted)"
		  . " OR (SELECT coalesce(bool_and(ticket IN ('queued', 'owned')), false) FROM zk_locks WHERE pid = $pid AND NOT granted)"
		  . " OR EXISTS (SELECT FROM zk_claims WHERE waiting_pid = $pid)");
}

# What backends do, in the order given: "NAME: SQL", "NAME+ SQL" for a wait, and "NAME! SQL" for what
# is not part of a transaction.  Each waits only for
# its last statement.  A victim rolls back and does the same again at once; the others commit.  Then
# those do what "after" says.  The result names the victims; nobody must have another error.
sub play
{
	my ($title, $victims, $after, @steps) = @_;
	my (%again, @waiting, @victims);
	foreach (@steps)
	{
		my ($name, $waits, $sql) = /^(\w+)([:+!]) (.*)$/s or die $_;
		if ($waits eq '!')
		{
			wait_until_waiting($waiting[-1]) if @waiting;
			$backend{$name}->query($sql);
			# The claim's znode is there before that of the next wait.
			$watch{n}->wait_until(q{SELECT bool_and(ticket IN ('queued', 'owned')) FROM zk_locks WHERE path = '/c'});
			next;
		}
		$backend{$name}->query('BEGIN') unless $again{$name};
		push @{ $again{$name} }, $sql;
		if ($waits eq ':')
		{
			$backend{$name}->query($sql);
			next;
		}
		wait_until_waiting($waiting[-1]) if @waiting;
		$backend{$name}->send($sql);
		push @waiting, $name;
	}
	my %left = map { $_ => 1 } @waiting;
	while (%left)
	{
		my ($name) = grep { $backend{$_}->is_done } sort keys %left;
		if (!$name)
		{
			select(undef, undef, undef, 0.01);
			next;
		}
		my $result = $backend{$name}->result;
		if ($result->{errcode})
		{
			is($result->{errcode}, '40P01', "$title: the error of $name") or diag($result->{err});
			push @victims, $name;
			$backend{$name}->query('ROLLBACK');
			if ($result->{errcode} eq '40P01' && @victims < 4)
			{
				$backend{$name}->send(join '; ', 'BEGIN', @{ $again{$name} });
				next;
			}
		}
		else
		{
			$backend{$name}->query('COMMIT');
		}
		delete $left{$name};
		$after->($name) if $after;
	}
	# The victim may try again so early that the same transactions meet once more.
	return like("@victims", qr/^($victims)(?: \1)*$/, "$title: one victim, and all go on when it tries again");
}

# --- within a server: a row ---

foreach my $released (0, 1)
{
	my @title = ($released ? 'a claim in use that was released' : 'a claim in use');
	my @waits = ('n2+ ' . mutex('/dl'), 'n1+ ' . row(1));
	foreach my $order ('', ', the other way round')
	{
		granted('/dl');
		my @first = ('n1: ' . uses('/dl'), 'n2: ' . row(1));
		push @first, "n1: SELECT zk_claim_release('$claim{'/dl'}')" if $released;
		play("@title$order", 'n2', sub { release('/dl') if $_[0] eq 'n1' }, @first, @waits);
		@waits = reverse @waits;
	}
}
play('the control: a lock', 'n1|n2', undef, 'n1: ' . mutex('/dl'), 'n2: ' . row(1), 'n2+ ' . mutex('/dl'), 'n1+ ' . row(1));

granted('/dl');
play('two transactions that use one claim', 'n2', sub { release('/dl') if $_[0] eq 'n3' },
	'n1: ' . uses('/dl'), 'n3: ' . uses('/dl'), 'n2: ' . row(1), 'n1+ ' . row(1), 'n3+ ' . row(1), 'n2+ ' . mutex('/dl'));

# --- between servers ---

# Who uses a claim still has it after a rollback, so the other one is the victim, whoever was last.
foreach my $order ([ 'n1+ ' . mutex('/b'), 's1+ ' . mutex('/dl') ], [ 's1+ ' . mutex('/dl'), 'n1+ ' . mutex('/b') ])
{
	granted('/dl');
	play("two servers, $order->[0] first", 's1', sub { release('/dl') if $_[0] eq 'n1' }, 'n1: ' . uses('/dl'), 's1: ' . mutex('/b'), @$order);
}
granted('/dl');
play('a row behind it', 's1', sub { release('/dl') if $_[0] eq 'n1' },
	'n1: ' . uses('/dl'), 'n2: ' . row(1), 's1: ' . mutex('/b'), 'n1+ ' . row(1), 'n2+ ' . mutex('/b'), 's1+ ' . mutex('/dl'));

# Both use claims: the victim's rollback frees nothing, but its client can release the claim.
granted('/dl');
granted('/b', 's');
$backend{$_}->query('BEGIN') foreach qw(n1 s1);
$backend{n1}->query(uses('/dl'));
$backend{s1}->query(uses('/b'));
$backend{n1}->send(mutex('/b'));
wait_until_waiting('n1');
$backend{s1}->send(mutex('/dl'));
is($backend{s1}->result->{errcode}, '40P01', 'both use claims: the younger wait is the victim');
$backend{s1}->query('ROLLBACK');
is(release('/b', 's'), 't', 'its client releases the claim');
is($backend{n1}->result->{out}, 't', 'and the other one goes on');
$backend{n1}->query('COMMIT');
release('/dl');

# --- waits for claims ---

# The call is the victim, and the claim keeps its place.
sub waits_for { my ($path) = @_; return "SELECT zk_claim_wait(claim) FROM zk_claims WHERE path = '$path'"; }
my $ask = q{n3! SELECT zk_claim_request('/c', '40 s')};
sub release_all { return $watch{n}->query('SELECT count(zk_claim_release(claim)) FROM zk_claims'); }

my @waits = ('n1+ ' . waits_for('/c'), 'n2+ ' . row(1));
foreach my $order ('', ', the other way round')
{
	play("a wait for a claim, within a server$order", 'n1', sub { release_all() if $_[0] eq 'n1' }, 'n2: ' . mutex('/c'), $ask, 'n1: ' . row(1), @waits);
	@waits = reverse @waits;
}
foreach ([ 's1', $ask, 'n1+ ' . waits_for('/c'), 's1+ ' . mutex('/a') ], [ 'n1', 's1+ ' . mutex('/a'), $ask, 'n1+ ' . waits_for('/c') ])
{
	my ($victim, @order) = @$_;
	play("a wait for a claim, between servers, and $victim was last in a queue", $victim, sub { release_all() if $_[0] eq 'n1' },
		's1: ' . mutex('/c'), 'n1: ' . mutex('/a'), @order);
}
foreach my $uses (0, 1)
{
	my $title = $uses ? 'a transaction that uses another claim on the lock' : 'a session that holds the lock';
	granted('/c') if $uses;
	$backend{n1}->query('BEGIN; ' . ($uses ? uses('/c') : mutex('/c')));
	release('/c') if $uses;
	request('/c');
	is($backend{n1}->errcode(waits_for('/c')), '40P01', "$title waits for itself");
	$backend{n1}->query('ROLLBACK');
	is($backend{n1}->query(waits_for('/c')), 't', 'after its rollback, the claim is granted');
	release('/c');
}

# --- no deadlock ---

granted('/dl');
granted('/other');
$backend{$_}->query('BEGIN') foreach qw(n1 n2 n3);
$backend{n1}->query(uses('/dl'));
$backend{n2}->query(q{SET LOCAL deadlock_timeout = '1 ms'});
$backend{n2}->query(row(1));
$backend{n3}->query(uses('/other'));
$backend{n3}->send(row(1));
wait_until_waiting('n3');
$backend{n2}->send(mutex('/dl'));
my $pid = $backend{n2}->pid;
$watch{n}->wait_until("SELECT EXISTS (SELECT FROM zk_waits WHERE pid = $pid AND path = '/dl')");
sub requests { return [ split /\|/, $watch{n}->query('SELECT requests, extract(epoch FROM clock_timestamp()) FROM zk_status') ]; }
my $since = requests();
$watch{n}->query('SELECT pg_sleep(2)');
my ($requests, $seconds) = map { requests()->[$_] - $since->[$_] } 0, 1;
note "$requests requests in $seconds s";
cmp_ok($requests, '<=', 80 * ($seconds + 1), 'searches are not more frequent than ten a second, whatever deadlock_timeout');
$backend{n1}->query('COMMIT');
is(release('/dl'), 't', 'waits that are published, and no circle');
is($backend{n2}->answer, 't', 'all go on');
$backend{n2}->query('COMMIT');
is($backend{n3}->result->{errcode}, '', 'in turn');
$backend{n3}->query('COMMIT');
is(join(' ', map { $node{$_}->safe_psql('postgres', 'SELECT sum(deadlocks) > 0 FROM zk_stat_locks') } sort keys %node), 't t', 'deadlocks count at the locks');

done_testing();
