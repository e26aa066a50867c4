
=head1 NAME

DeadlockHistory - which deadlocks there were among many clients, and whether they were broken

=head1 SYNOPSIS

	my $history = DeadlockHistory->new(@lines);
	my @problems = $history->problems;

A history is a list of lines, one for each event, in any order.  Their fields stand between
blanks:

	TIME SERVER PID want PATH MODE [LEASES N]	a statement that acquires is about to be sent
	TIME SERVER PID granted						its answer has come: it was acquired
	TIME SERVER PID refused						... or not: a timeout, false, another error
	TIME SERVER PID deadlock [held_by=SERVER:PID,...]
												... or 40P01, with the processes that hold
												something, as DETAIL names them
	TIME SERVER PID release PATH				a release is about to be sent
	TIME SERVER PID end							COMMIT or ROLLBACK is about to be sent, which
												releases all
	TIME SERVER - stop							the server stands still; "*": ZooKeeper
	TIME SERVER - go							it works again
	TIME * - config bound=MS race=MS [turn=MS]	within what time a deadlock must be broken, from
												the C<want> of its last member; by how much two
												C<want> may have overtaken each other; and by
												how much if the earlier one's server had to
												queue again

TIME is in microseconds of one clock.  MODE is C<lock>, C<write>, C<read>, C<lease>, or C<row>
for a resource that only one server knows, such as a row.  A client has at most one C<want>
without an answer.

=head1 WHAT IS A DEADLOCK

While a client waits for an answer, it holds all that it was granted before, and releases
nothing.  So whenever a client waits, the history knows with certainty which clients hold which
locks.  It does not know the order of a queue if two clients came at nearly the same time, nor
whether a client that waits for an answer has got its lock already.  Therefore there are two
graphs: one of all waits that I<may> have been, and one of those that I<must> have been.  A
40P01 is right if there may have been a circle through its client.  A deadlock that must have
been has to be broken in time.

Of two clients in a queue, the one whose C<want> came earlier is before the other, give or take
C<race>.  There is one way in which a later client of another server comes first: the earlier
one waits for a ticket that other clients of its server use, and when that server's turn is
over, it queues again.  So C<turn> counts only if there were such clients, or if the server
stood still.  Later events tell about the order, too: a client that is granted the lock while a
client of another server still waits did not wait behind that one.

A client is stuck if the lock that it waits for is held by clients that are stuck.  Of several
clients that wait for the same lock, only the holders matter to each other's waits, because all
of them wait for the same holders.  A reader is also stuck behind a reader if a writer waits
between them.  A waiter for leases is stuck if stuck clients hold so many of them that not
enough are left.  The first waiter for leases keeps the others waiting.

=cut

package DeadlockHistory;

use strict;
use warnings;

=head1 METHODS

=over

=item DeadlockHistory->new(@lines)

=item $history->problems

What is wrong, as a list of messages, each beginning with the name of its rule: C<history>,
C<false> (a 40P01 without a deadlock), C<twice> (a deadlock with two victims), C<detail> (a process
is named that was not in the circle), C<slow>, C<stays>.

A C<detail> is judged only if C<held_by> is given.  PostgreSQL's own 40P01 may name a process
that only queues before another one, so it should come without C<held_by>.

=item $history->figures

The counts, as a hash.

=back

=cut

my %number_of_fields = (want => [ 6, 8 ], granted => [ 4, 6 ], refused => [ 4, 6 ], deadlock => [ 4, 7 ],
	release => [ 5, 6 ], end => [4], stop => [4], go => [4], config => [ 5, 7 ]);

sub new
{
	my ($class, @lines) = @_;
	my $self = bless {
		problems => [], bound => 10_000_000, race => 100_000, turn => undef,
		uses => {},				# server => path => the clients that want or hold it, or did of late
		stops => {},			# server => when it stood still
		held => {},				# path => client => what it was granted
		waits => {},			# client => its request without an answer
		waiting => {},			# path => client => the same
		circles => [],			# that must be, and are not broken
		victims => [], stopped => {}, now => 0,
		figures => { map { $_ => 0 } qw(wants granted refused deadlocks circles slowest overlapping) },
	}, $class;
	my @events = sort { $a->{t} <=> $b->{t} || $a->{line} <=> $b->{line} }
	  map { $self->_parse($lines[$_], $_ + 1) } 0 .. $#lines;
	_note_answers(@events);
	foreach my $event (@events)
	{
		$self->{now} = $event->{t};
		my $method = "_on_$event->{event}";
		$self->$method($event);
	}
	$self->_look_at_the_end;
	return $self;
}

sub problems { my ($self) = @_; return @{ $self->{problems} }; }
sub figures { my ($self) = @_; return %{ $self->{figures} }; }

sub _problem { my ($self, $text) = @_; push @{ $self->{problems} }, $text; return; }

sub _parse
{
	my ($self, $line, $number) = @_;
	my @fields = split ' ', $line;
	my %options = map { split /=/, $_, 2 } grep { /^[a-z_]+=/ } @fields;
	my ($t, $server, $pid, $event, $path, $mode, $leases, $n) = grep { !/^[a-z_]+=/ } @fields;
	my $known = defined $event && $number_of_fields{$event};

	if (!$known || @fields < $known->[0] || @fields > $known->[-1] || $t !~ /^\d+$/)
	{
		$self->_problem("history: line $number: $line");
		return;
	}
	$path = "$server:$path" if defined $mode && $mode eq 'row';
	return { %options, t => $t, server => $server, client => "$server:$pid", event => $event, path => $path,
		mode => $mode, leases => $leases // 1, n => $n // 1, line => $number };
}

# What becomes of each request
sub _note_answers
{
	my %open;
	foreach my $event (@_)
	{
		if ($event->{event} eq 'want') { $open{ $event->{client} } = $event; }
		elsif ($event->{event} =~ /^(?:granted|refused|deadlock)$/ && $open{ $event->{client} })
		{
			my $want = delete $open{ $event->{client} };
			@$want{qw(answered outcome)} = @$event{qw(t event)};
		}
	}
	return;
}

# --- events ---

sub _on_config
{
	my ($self, $event) = @_;
	foreach (qw(bound race turn)) { $self->{$_} = $event->{$_} * 1000 if defined $event->{$_}; }
	return;
}

sub _on_want
{
	my ($self, $event) = @_;
	my $client = $event->{client};

	$self->_problem("history: $client asks twice, line $event->{line}") if $self->{waits}{$client};
	$event->{was_in} = [];
	$self->{waits}{$client} = $event;
	$self->{waiting}{ $event->{path} }{$client} = $event;
	$self->{figures}{wants}++;
	$self->_begin_use($event);

	# A circle is closed by the last one of its members to wait, or by a client that has come between
	# two of them in a queue.
	my @closing = $event->{mode} =~ /^(?:write|lease)$/ ? values %{ $self->{waiting}{ $event->{path} } } : ($event);
	foreach my $want (@closing)
	{
		my $circle = $self->_circle($want, 1) or next;
		push @{ $_->{was_in} }, $circle foreach @{ $circle->{members} };
	}
	$self->_note_circle($event, $event->{t});
	return;
}

sub _answer
{
	my ($self, $event) = @_;
	my $client = $event->{client};
	my $want = delete $self->{waits}{$client};

	if (!$want)
	{
		$self->_problem("history: $client was not asked, line $event->{line}");
		return;
	}
	delete $self->{waiting}{ $want->{path} }{$client};
	$self->_end_circles($want, $event->{t});
	$want->{use}{to} = $event->{t} if $event->{event} ne 'granted';
	return $want;
}

# Uses that ended long ago are forgotten.
sub _begin_use
{
	my ($self, $want) = @_;
	my $uses = $self->{uses}{ $want->{server} }{ $want->{path} } //= [];
	my $old = $want->{t} - 2 * $self->_turn;
	shift @$uses while @$uses && defined $uses->[0]{to} && $uses->[0]{to} < $old;
	push @$uses, $want->{use} = { client => $want->{client}, from => $want->{t}, to => undef };
	return;
}

sub _end_uses
{
	my ($self, $hold, $t) = @_;
	$_->{to} = $t foreach @{ $hold->{uses} };
	return;
}

sub _on_granted
{
	my ($self, $event) = @_;
	my $want = $self->_answer($event) or return;
	$self->{figures}{granted}++;
	my $hold = $self->{held}{ $want->{path} }{ $want->{client} } //= { %$want, leases => 0 };
	$hold->{leases} += $want->{leases};
	push @{ $hold->{uses} }, $want->{use};
	$hold->{mode} = $want->{mode} unless $hold->{mode} eq 'write';
	return;
}

sub _on_refused
{
	my ($self, $event) = @_;
	$self->_answer($event) and $self->{figures}{refused}++;
	return;
}

sub _on_release
{
	my ($self, $event) = @_;
	my ($path, $client) = @$event{qw(path client)};
	my $hold = delete $self->{held}{$path}{$client};
	if ($hold) { $self->_end_uses($hold, $event->{t}); }
	else { $self->_problem("history: $client does not hold $path, line $event->{line}"); }
	return;
}

sub _on_end
{
	my ($self, $event) = @_;
	foreach my $held (values %{ $self->{held} })
	{
		my $hold = delete $held->{ $event->{client} } or next;
		$self->_end_uses($hold, $event->{t});
	}
	return;
}

# While a server stands still, its deadlocks stay; afterwards, there is as much time as at first.
sub _on_stop
{
	my ($self, $event) = @_;
	$self->{stopped}{ $event->{server} } = 1;
	push @{ $self->{stops}{ $event->{server} } }, { from => $event->{t}, to => undef };
	return;
}

sub _on_go
{
	my ($self, $event) = @_;
	delete $self->{stopped}{ $event->{server} };
	$_->{to} //= $event->{t} foreach @{ $self->{stops}{ $event->{server} } // [] };
	foreach my $circle (@{ $self->{circles} })
	{
		$circle->{since} = $event->{t} if $self->_concerns($event->{server}, $circle);
	}
	return;
}

sub _concerns
{
	my ($self, $server, $circle) = @_;
	return $server eq '*' || grep { $_->{server} eq $server } @{ $circle->{members} };
}

# --- errors ---

sub _on_deadlock
{
	my ($self, $event) = @_;
	my $want = $self->_answer($event) or return;
	my @circles = @{ $want->{was_in} };

	$self->{figures}{deadlocks}++;
	$want->{victim} = 1;
	if (!@circles)
	{
		$self->_problem("false: $event->{client} got 40P01 for $want->{path} at $event->{t}, and was in no circle");
		return;
	}
	my %members = map { $_->{client} => 1 } map { @{ $_->{members} } } @circles;
	foreach my $holder (grep { !$members{$_} } split /,/, $event->{held_by} // '')
	{
		$self->_problem("detail: $event->{client} names $holder, which was in no circle with it");
	}

	# Two victims of one deadlock: neither was in a circle without the other.
	foreach my $earlier (grep { $members{ $_->{client} } } @{ $self->{victims} })
	{
		next if _has_circle_without($want, $earlier);
		if (_has_circle_without($earlier, $want)) { $self->{figures}{overlapping}++; }
		else { $self->_problem("twice: $earlier->{client} and $want->{client} got 40P01 for " . _show($circles[0])); }
	}
	push @{ $self->{victims} }, $want;
	return;
}

sub _has_circle_without
{
	my ($want, $other) = @_;
	return grep { _leads_to($_, $want, $want, $other) } @{ $want->{was_in} };
}

# --- the graph ---

# The requests that this request may hold up, or must.  Clients that hold something and do not wait
# can go on, so only requests matter.
sub _blockers
{
	my ($self, $want, $may) = @_;
	my ($path, $mode) = @$want{qw(path mode)};
	my $held = $self->{held}{$path} // {};
	my @holders = grep { $mode eq 'lease' || $_ ne $want->{client} } keys %$held;

	if ($mode eq 'read' && !grep { $_->{mode} eq 'write' && $self->_is_before($_, $want, $may) }
		values %{ $self->{waiting}{$path} })
	{
		@holders = grep { $held->{$_}{mode} ne 'read' } @holders;
	}
	return grep { defined } map { $self->{waits}{$_} } @holders;
}

sub _turn { my ($self) = @_; return $self->{turn} // $self->{race}; }

# Did the request come earlier, to the same queue?
sub _is_before
{
	my ($self, $one, $other, $may) = @_;
	return 0 if $one == $other;
	return $one->{t} + $self->_turn < $other->{t} if !$may;
	return $one->{t} < $other->{t} + $self->{race} if $one->{server} eq $other->{server};
	return 0 if $self->_goes_first($other, $one);
	return 1 if $one->{t} < $other->{t} + $self->{race};
	return $one->{t} < $other->{t} + $self->_turn && $self->_may_queue_again($other, $one->{t});
}

# Is the request granted the lock while the other one still waits?
sub _goes_first
{
	my ($self, $want, $other) = @_;
	return ($want->{outcome} // '') eq 'granted' && (!defined $other->{answered} || $want->{answered} + $self->{race} < $other->{answered});
}

# May a request of another server at this time have got a place before this one?  That is so if its
# server stood still, or has other clients with a ticket.
sub _may_queue_again
{
	my ($self, $want, $t) = @_;
	my ($from, $to) = ($want->{t} - $self->{race}, $t + $self->{race});
	my @uses = grep { $_->{client} ne $want->{client} } @{ $self->{uses}{ $want->{server} }{ $want->{path} } // [] };
	my @stops = map { @{ $self->{stops}{$_} // [] } } '*', $want->{server};
	return scalar((grep { $_->{from} <= $to && ($_->{to} // $to) >= $from } @uses)
		|| (grep { $_->{from} <= $to && ($_->{to} // $to) >= $from - $self->_turn } @stops));
}

# The requests in the queue before which a waiter for leases may have to wait, or must.
sub _queue
{
	my ($self, $want, $may) = @_;
	return if $want->{mode} ne 'lease';
	return grep { $self->_is_before($_, $want, $may) } values %{ $self->{waiting}{ $want->{path} } };
}

# The requests that are deadlocked with this one, a strongly connected part: its members, and behind
# whom each of them is; or nothing.
sub _circle
{
	my ($self, $start, $may) = @_;
	my (%reached, %next, @todo);

	# All requests that matter to this one
	@todo = ($start);
	$reached{$start} = $start;
	while (my $want = shift @todo)
	{
		$next{$want} = [ $self->_blockers($want, $may), $self->_queue($want, $may) ];
		foreach (grep { !$reached{$_} } @{ $next{$want} })
		{
			next if $reached{$_};
			$reached{$_} = $_;
			push @todo, $_;
		}
	}

	# A client that can go on leaves the graph.
	my $changed = 1;
	while ($changed)
	{
		$changed = 0;
		foreach my $want (values %reached)
		{
			next if $self->_is_stuck($want, $next{$want}, \%reached, $may);
			delete $reached{$want};
			$changed = 1;
		}
	}
	return unless $reached{$start};
	my $circle = { behind => { map { my $want = $_; $want => [ grep { $reached{$_} } @{ $next{$want} } ] } values %reached } };
	$circle->{members} = [ grep { _leads_to($circle, $_, $start) } values %reached ];
	return @{ $circle->{members} } ? $circle : ();
}

sub _is_stuck
{
	my ($self, $want, $next, $stuck, $may) = @_;
	return scalar grep { $stuck->{$_} } @$next if $want->{mode} ne 'lease';

	# Only a client that is short of leases keeps others waiting in the queue.
	return 1 if $self->_is_short($want, $stuck);
	return grep { $stuck->{$_} && $self->_is_short($_, $stuck) } $self->_queue($want, $may);
}

sub _is_short
{
	my ($self, $want, $stuck) = @_;
	my $held = $self->{held}{ $want->{path} } // {};
	my $sum = 0;
	foreach my $client (keys %$held)
	{
		my $other = $self->{waits}{$client};
		$sum += $held->{$client}{leases} if $other && $stuck->{$other};
	}
	return $sum + $want->{leases} > $want->{n};
}

# Is there a way in the circle from one request to another, without a third?
sub _leads_to
{
	my ($circle, $from, $to, $without) = @_;
	my %seen = $without ? ($without => 1) : ();
	my @todo = ($from);
	while (my $want = shift @todo)
	{
		my @next = grep { !$seen{$_}++ } @{ $circle->{behind}{$want} // [] };
		return 1 if grep { $_ == $to } @next;
		push @todo, @next;
	}
	return 0;
}

# --- time ---

sub _note_circle
{
	my ($self, $want, $since) = @_;
	my $circle = $self->_circle($want, 0) or return;

	# The circle may have grown out of others.
	my %new = map { $_ => 1 } @{ $circle->{members} };
	@{ $self->{circles} } = grep { !grep { $new{$_} } @{ $_->{members} } } @{ $self->{circles} };
	push @{ $self->{circles} }, { %$circle, since => $since };
	$self->{figures}{circles}++;
	return;
}

# A request was answered: the circles that it was in are others now, or none.
sub _end_circles
{
	my ($self, $want, $t) = @_;
	my (@left, @ended);
	foreach my $circle (@{ $self->{circles} })
	{
		if (grep { $_ == $want } @{ $circle->{members} }) { push @ended, $circle; }
		else { push @left, $circle; }
	}
	$self->{circles} = \@left;
	foreach my $circle (@ended)
	{
		$self->_check_time($circle, $t, 'slow');
		foreach my $member (grep { $_ != $want } @{ $circle->{members} })
		{
			next if grep { my $known = $_; grep { $_ == $member } @{ $known->{members} } } @{ $self->{circles} };
			$self->_note_circle($member, $t);
		}
	}
	return;
}

sub _check_time
{
	my ($self, $circle, $t, $rule) = @_;
	return if grep { $self->_concerns($_, $circle) } keys %{ $self->{stopped} };
	my $stood = $t - $circle->{since};
	$self->{figures}{slowest} = $stood if $stood > $self->{figures}{slowest};
	$self->_problem(sprintf '%s: a deadlock stood for %d ms: %s', $rule, $stood / 1000, _show($circle))
	  if $stood > $self->{bound};
	return;
}

sub _look_at_the_end
{
	my ($self) = @_;
	$self->_check_time($_, $self->{now}, 'stays') foreach @{ $self->{circles} };
	return;
}

sub _show
{
	my ($circle) = @_;
	return join ', ', sort map { "$_->{client} waits for $_->{path} ($_->{mode}) since $_->{t}" } @{ $circle->{members} };
}

1;
