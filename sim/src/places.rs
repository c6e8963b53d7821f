//! Objects by number, where a number is not used twice.

use std::collections::VecDeque;

/// Bits of a number that say which place; those above say how often it was given out before.
const PLACE_BITS: u32 = 20;

/// The most objects there can be at a time.
pub const MAX_PLACES: u32 = 1 << PLACE_BITS;

/// Objects by number. The places of those that are gone are used again, the longest empty first; their
/// numbers are not, so that an old number names nothing.
#[derive(Debug)]
pub struct Places<T> {
    places: Vec<Place<T>>,
    freed: VecDeque<u32>,
}

#[derive(Debug)]
struct Place<T> {
    number: u32,
    object: Option<T>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places {
            places: Vec::new(),
            freed: VecDeque::new(),
        }
    }
}

impl<T> Places<T> {
    /// Puts an object in and gives its number; `None` if there are [`MAX_PLACES`].
    pub fn insert(&mut self, object: T) -> Option<u32> {
        if let Some(at) = self.freed.pop_front() {
            let place = &mut self.places[at as usize];
            place.number += MAX_PLACES;
            place.object = Some(object);
            return Some(place.number);
        }
        let number = self.places.len() as u32;
        if number >= MAX_PLACES {
            return None;
        }
        self.places.push(Place {
            number,
            object: Some(object),
        });
        Some(number)
    }

    fn at(number: u32) -> usize {
        (number % MAX_PLACES) as usize
    }

    /// The object with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let place = self.places.get(Self::at(number))?;
        place.object.as_ref().filter(|_| place.number == number)
    }

    /// The object with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.places.get_mut(Self::at(number))?;
        place.object.as_mut().filter(|_| place.number == number)
    }

    /// Takes an object out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let at = Self::at(number);
        let place = self.places.get_mut(at)?;
        if place.number != number {
            return None;
        }
        let object = place.object.take()?;
        // A place whose numbers are used up stays empty.
        if number.checked_add(MAX_PLACES).is_some() {
            self.freed.push_back(at as u32);
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Puts in and takes out at random: what is in is found, what is gone is not, no number comes twice.
        #[test]
        fn numbers_name_what_they_were_given_for(steps in prop::collection::vec(any::<(bool, u8)>(), 0..300)) {
            let mut places = Places::default();
            let mut model = BTreeMap::new();
            let mut gone = Vec::new();
            for (step, (add, which)) in steps.into_iter().enumerate() {
                if add || model.is_empty() {
                    let number = places.insert(step).unwrap();
                    prop_assert!(!gone.contains(&number));
                    prop_assert_eq!(model.insert(number, step), None);
                } else {
                    let number = *model.keys().nth(which as usize % model.len()).unwrap();
                    prop_assert_eq!(places.remove(number), model.remove(&number));
                    gone.push(number);
                }
                for (&number, object) in &mut model {
                    prop_assert_eq!(places.get(number), Some(&*object));
                    prop_assert_eq!(places.get_mut(number), Some(object));
                }
                for &number in &gone {
                    prop_assert_eq!(places.get(number), None);
                    prop_assert_eq!(places.get_mut(number), None);
                    prop_assert_eq!(places.remove(number), None);
                }
            }
        }
    }

    #[test]
    fn places_are_used_again_until_their_numbers_are_used_up() {
        let mut places = Places::default();
        let uses = 1u64 << (32 - PLACE_BITS);
        for use_ in 0..uses {
            let number = places.insert(()).unwrap();
            assert_eq!(u64::from(number), use_ * u64::from(MAX_PLACES));
            places.remove(number).unwrap();
        }
        assert_eq!(places.insert(()), Some(1));
        assert_eq!(places.places.len(), 2);
    }

    #[test]
    fn there_is_a_limit() {
        let mut places = Places::default();
        for _ in 0..MAX_PLACES {
            assert!(places.insert(()).is_some());
        }
        assert_eq!(places.insert(()), None);
        assert!(places.remove(7).is_some());
        assert!(places.insert(()).is_some());
        assert_eq!(places.insert(()), None);
    }
}
